"""Numbers for Prometheus. Labels are bounded: never a run's, a pod's or a namespace's name.

Who calls: everything that counts. docs/kubernetes/metrics.md lists them.
"""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

PHASES = ("Pending", "Running", "Pausing", "Paused", "Succeeded", "Failed", "Cancelled")
SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """All of them, in a registry of their own."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.requests = Counter(
            "agentrun_operator_api_requests_total",
            "Requests to the Kubernetes API.",
            ["verb", "resource", "code"],
            registry=registry,
        )
        self.reconciles = Counter(
            "agentrun_operator_reconciles_total",
            "Looks at one AgentRun.",
            ["result"],
            registry=registry,
        )
        self.seconds = Histogram(
            "agentrun_operator_reconcile_seconds",
            "Seconds of one look.",
            buckets=SECONDS,
            registry=registry,
        )
        self.actions = Counter(
            "agentrun_operator_actions_total",
            "What was done.",
            ["action"],
            registry=registry,
        )
        self.attempts = Counter(
            "agentrun_operator_attempts_ended_total",
            "Attempts whose end the operator wrote, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self.queue = Gauge("agentrun_operator_queue_due", "Keys that wait for a worker.", registry=registry)
        self.stuck = Gauge(
            "agentrun_operator_worker_busy_seconds", "How long the slowest look takes now.", registry=registry
        )
        self.runs = Gauge(
            "agentrun_runs", "AgentRuns by phase, at the last sweep.", ["phase"], registry=registry
        )
        self.sweeps = Counter(
            "agentrun_operator_sweeps_total", "Sweeps over everything.", ["result"], registry=registry
        )
        self.swept_at = Gauge(
            "agentrun_operator_last_sweep_timestamp_seconds",
            "When the last one went well.",
            registry=registry,
        )
        self.found = Counter(
            "agentrun_operator_sweep_found_total",
            "Changes that the sweep found and no event had told.",
            registry=registry,
        )
        self.store_up = Gauge("agentrun_operator_store_up", "1: the store can be read.", registry=registry)
        self.pruned = Gauge(
            "agentrun_operator_status_fields_pruned",
            "Status fields that the served CRD lacks.",
            registry=registry,
        )

    def answered(self, verb: str, resource: str, code: str) -> None:
        """A request to the API server was answered; code "0": it was not."""
        self.requests.labels(verb, resource, code).inc()

    def phases(self, phases: Iterable[str]) -> None:
        """The phases of all objects."""
        counted = Counted(phase if phase in PHASES else "Pending" for phase in phases)
        for phase in PHASES:
            self.runs.labels(phase).set(counted[phase])

    def text(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self.registry)
