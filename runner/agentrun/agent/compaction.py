"""Keeps a conversation inside its model's window: steps below a turn, before its request.

    turn-57 → turn-57/results   old results are put aside; no request
              turn-57/summary   old turns are replaced by a summary, which the model writes

Who calls: the loop's `run_assistant_turn`, with the request that it is about to make.
What holds: a shortening is in the log before anything is told by it, and from then on is
read from there, so that each later request is the same whoever makes it; a provider that
refuses a request as too long is followed at most once a turn (`…-refused`), by a retry
out of the run's budget. Summaries count as turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentrun.agent.ask import AgentModel, ask, usage_of
from agentrun.agent.conversation import Conversation, text_of
from agentrun.agent.window import Window, plan
from agentrun.graph.types import NodeContext, NodeError, NodeKind, NodeResult, Spawned, scope_of
from agentrun.models import ModelError, ModelRequest, estimate_message, estimate_tokens
from agentrun.models.limits import RateLimits
from agentrun.proto import transcript_pb2 as pb

TOO_LONG = "ContextLengthExceeded"

SUMMARY_TOKENS_MAX = 4096
SUMMARY_PART_MAX = 0.1
"""The largest summary, as a part of the window."""
_BYTES_PER_TOKEN = 4
_RESERVED_PART_MAX = 0.1

SUMMARISE = (
    "This conversation has become too long. Write a summary that takes the place of everything above but "
    "my first message; whoever goes on from it knows nothing else. Say what has been done and found so far, "
    "with the exact names, numbers, paths and ids that may be needed again (also the names of results that "
    "were cut or put aside), what was decided and why, and what is still to be done. Call no tool. Write "
    "the summary alone."
)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A turn that is to be asked for. `base`: its request, without messages; `before`: the turn
    before it; `window` None: its conversation is never shortened."""

    base: ModelRequest
    models: Sequence[AgentModel]
    conversation: Conversation
    window: Window | None
    before: pb.AssistantTurn | None


class Compaction:
    """The steps of a run that shorten its conversations."""

    def __init__(self, limits: RateLimits) -> None:
        self._limits = limits
        self._jobs: dict[str, Job] = {}  # by the scope of their steps, while these are under way

    def kinds(self) -> list[NodeKind]:
        """The node kinds of these steps."""
        return [
            NodeKind(name="shorten_results", run=self.shorten_results, free=True),
            NodeKind(name="summarise", run=self.summarise, turn=True),
        ]

    async def fit(self, node: NodeContext, job: Job) -> ModelRequest:
        """The turn's request: with what is told before it, shortened first where that is too long."""
        assert job.base.turn
        messages = await job.conversation.before(node, job.base.turn)
        root = _next_step(node, job, refused=node.failed == TOO_LONG)
        if root is not None:
            scope = node.node_id + "/"
            self._jobs[scope] = job
            try:
                job.conversation.shorten(pb.Shortening.FromString(await node.subgraph(root)))
            finally:
                self._jobs.pop(scope, None)
            messages = await job.conversation.before(node, job.base.turn)
        return replace(job.base, messages=messages)

    # --- the steps

    async def shorten_results(self, node: NodeContext) -> NodeResult:
        """Its record says from where on results are told whole."""
        return NodeResult(output=node.input)

    async def summarise(self, node: NodeContext) -> NodeResult:
        """Asks the model for a summary of the old turns."""
        job = self._jobs[scope_of(node.node_id)]
        assert job.window is not None
        told = pb.Shortening.FromString(node.input)
        most = _summary_tokens(job.window)
        messages = [*job.conversation.up_to(told.summary_to), pb.UserMessage(text=SUMMARISE)]
        response = await ask(
            node,
            [replace(model, settings=_settings(model, job.base, most)) for model in job.models],
            replace(job.base, messages=messages, turn=0, output_schema=None),
            before=job.before,
            conversation_tokens=sum(map(estimate_message, messages)),
            limits=self._limits,
        )
        usage = usage_of(response.usage)
        told.summary = _bounded(text_of(response.turn).strip(), most * _BYTES_PER_TOKEN)
        if not told.summary:
            raise NodeError("InvalidResponse", "the model wrote no summary", retryable=True, usage=usage)
        return NodeResult(output=told.SerializeToString(), usage=usage)


def may_follow(node: NodeContext, error: ModelError, job: Job) -> bool:
    """The provider says that the request is too long, and the turn can be tried again, shortened."""
    return error.reason == TOO_LONG and _next_step(node, job, refused=True) is not None


def _next_step(node: NodeContext, job: Job, *, refused: bool) -> Spawned | None:
    """The step that the turn needs before its request, by what the log says."""
    if job.window is None or _is_refused(node, node.name):
        return None
    if not refused and node.is_done(f"{node.name}/summary"):
        return None
    told = pb.Shortening()
    told.CopyFrom(job.conversation.shortening)
    window = job.window.no_larger_than(told.window_tokens)
    sizes = job.conversation.sizes()
    size = estimate_tokens(job.base) + job.conversation.tokens
    if refused:
        window = window.refused_at(size)
        told.window_tokens = window.tokens
    fixed = size - sum(turn.tokens for turn in sizes)
    found = plan(window, fixed, _output_tokens(job, window), sizes)
    if found is None:
        return None
    if found.summary:
        told.summary_to = found.to
    else:
        told.results_to = found.to
    kind, name = ("summarise", "summary") if found.summary else ("shorten_results", "results")
    return Spawned(kind=kind, name=f"{name}-refused" if refused else name, input=told.SerializeToString())


def _output_tokens(job: Job, window: Window) -> int:
    """The largest answer to a turn's request."""
    most = int(window.tokens * _RESERVED_PART_MAX)
    return max(model.max_output_tokens or min(model.reserved_output_tokens, most) for model in job.models)


def _is_refused(node: NodeContext, turn: str) -> bool:
    """The turn was shortened because a provider refused it."""
    return any(node.is_done(f"{turn}/{name}-refused") for name in ("summary", "results"))


def _summary_tokens(window: Window) -> int:
    return max(256, min(SUMMARY_TOKENS_MAX, int(window.tokens * SUMMARY_PART_MAX)))


def _settings(model: AgentModel, base: ModelRequest, most: int) -> Mapping[str, Any]:
    """The agent's, but for what could cut a summary short or turn it into calls."""
    settings = {key: value for key, value in model.settings.items() if key != "stop"}
    return {**settings, "maxTokens": most} | ({"toolChoice": "none"} if base.tools else {})


def _bounded(text: str, bytes_max: int) -> str:
    return text.encode()[:bytes_max].decode(errors="ignore")
