"""What is written to the API server on behalf of runs, counted by the API server itself.

Its metrics name no caller: on a cluster with nothing else under way, writes to agentruns and
their status and the making and deleting of pods are the operator's and the test's own; but that
each deleted pod counts twice, for the kubelet confirms it in the same way.
"""

from __future__ import annotations

import re
from collections import Counter

from tests.e2e.cluster.kube import Kubectl

_LINE = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<count>[0-9.e+]+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_WRITES = {"POST", "PUT", "PATCH", "DELETE", "APPLY"}


def writes(kube: Kubectl) -> Counter[str]:
    """So far, as `VERB resource[/subresource]` with the count of those that went through."""
    found: Counter[str] = Counter()
    for line in kube.raw("/metrics").splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        labels = dict(_LABEL.findall(match["labels"]))
        resource = labels["resource"]
        if labels["verb"] not in _WRITES or resource not in ("agentruns", "pods"):
            continue
        if resource == "pods" and labels["subresource"]:
            continue  # the kubelet's and the scheduler's
        if labels["scope"] == "namespace" and labels["verb"] == "DELETE":
            continue  # the end of a namespace
        name = resource + (f"/{labels['subresource']}" if labels["subresource"] else "")
        found[f"{labels['verb']} {name}"] += int(float(match["count"]))
    return found


def events_written(kube: Kubectl, name: str) -> list[tuple[str, str]]:
    """(reason, message) of each Event about an AgentRun, in order; one that was told n times counts n."""
    events = [
        event
        for event in kube.list("events")
        if event["involvedObject"]["kind"] == "AgentRun" and event["involvedObject"]["name"] == name
    ]
    events.sort(key=lambda event: event.get("eventTime") or event.get("firstTimestamp") or "")
    return [
        (event["reason"], event.get("message", ""))
        for event in events
        for _ in range(event.get("count") or 1)
    ]
