"""One try of one turn: one request to one of an agent's models.

Who calls: the loop's `run_assistant_turn`. What holds: a model that has asked for a
pause is not asked before it is over; what a failed try means for the next one is in
its record; each try is one request, drawn from the run's one budget.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentrun.agent import choice
from agentrun.graph.types import NodeContext, NodeError, Usage
from agentrun.models import Model, ModelError, ModelRequest, ModelResponse, estimate_tokens
from agentrun.models.base import Usage as ModelUsage
from agentrun.models.limits import RateLimits
from agentrun.models.settings import unset_max_tokens
from agentrun.proto import transcript_pb2 as pb

OUTPUT_TOKENS_RESERVED = 4096
"""A turn's largest output, for the budget, where neither the manifest nor the request sets one."""


@dataclass(frozen=True, kw_only=True)
class AgentModel:
    """One of an agent's models. `limits`: what it shares its rate limit under."""

    model: Model
    settings: Mapping[str, Any]
    timeout_seconds: float
    limits: Hashable

    @property
    def max_output_tokens(self) -> int | None:
        """As the manifest sets it."""
        value = self.settings.get("maxTokens")
        return int(value) if value else None

    @property
    def reserved_output_tokens(self) -> int:
        """A turn's largest output, for the budget."""
        asked = self.max_output_tokens or unset_max_tokens(self.model.name)
        return asked or OUTPUT_TOKENS_RESERVED


class _Paused(Exception):
    """The model was paused meanwhile; nothing has left."""


async def ask(
    node: NodeContext,
    models: Sequence[AgentModel],
    request: ModelRequest,
    *,
    before: pb.AssistantTurn | None,
    conversation_tokens: int,
    limits: RateLimits,
    mends: Callable[[ModelError], bool] = lambda error: False,
) -> ModelResponse:
    """The turn, with its state. Raises NodeError with the memo for the next try.

    `request` has what all models are told; `conversation_tokens` is what its messages
    may cost. `before`: the turn before this one. `mends`: the next try will not send what
    has led to that error, and asks the same model.
    """
    state = choice.begin(node.memo, before, len(models))
    asked = models[state.place]
    try:
        told = _for_model(node, asked, request, state)
        response = await _request(node, asked, told, conversation_tokens, limits)
    except ModelError as error:
        if error.retryable and error.retry_after_seconds:
            limits.pause(asked.limits, error.retry_after_seconds)
        raise _node_error(error, state, models, limits, mended=mends(error)) from error
    if (said := choice.answered(state)) is not None:
        response.turn.state.CopyFrom(said)
    return response


def _for_model(
    node: NodeContext, asked: AgentModel, request: ModelRequest, state: pb.ModelState
) -> ModelRequest:
    tries = choice.tries_of(state) if state.tries else node.try_number - 1
    return replace(
        request,
        settings=asked.settings,
        max_output_tokens=asked.max_output_tokens,
        timeout_seconds=asked.timeout_seconds,
        key=f"{node.node_id}#{tries + 1}",
        place=state.place,
        without=choice.refused_by(state),
        on_delta=lambda delta: node.partial(delta.kind, delta.text),
    )


async def _request(
    node: NodeContext, asked: AgentModel, request: ModelRequest, conversation_tokens: int, limits: RateLimits
) -> ModelResponse:
    """Waits for the model's pause and for room in the budget, and asks once."""
    told = estimate_tokens(replace(request, messages=()))
    tokens = told + conversation_tokens + (request.max_output_tokens or asked.reserved_output_tokens)

    async def before_send() -> None:
        await node.confirm()
        if limits.left(asked.limits):
            raise _Paused

    while True:
        while left := limits.left(asked.limits):
            await node.wait(left)
        await node.reserve(tokens)
        try:
            return await asked.model.request(replace(request, before_send=before_send))
        except _Paused:
            continue


def _node_error(
    error: ModelError,
    state: pb.ModelState,
    models: Sequence[AgentModel],
    limits: RateLimits,
    *,
    mended: bool,
) -> NodeError:
    """The failed try as the log has it: with whom the next one asks, and when."""
    following = choice.after_failure(state, error, len(models), mended=mended)
    again = not choice.exhausted(following, len(models))
    wait, message = error.retry_after_seconds, error.message
    at_once = mended or bool(error.refused_option)
    if again and following.place != state.place:
        model = models[following.place]
        wait, message = limits.left(model.limits), f"{message} (next: {model.model.name})"
        at_once = choice.tries_of(following) == 0
    return NodeError(
        error.reason,
        message,
        retryable=again,
        retry_after_seconds=wait,
        usage=usage_of(error.usage),
        memo=following.SerializeToString() if len(models) > 1 or following.refused else b"",
        at_once=again and at_once,
    )


def usage_of(usage: ModelUsage) -> Usage:
    """In the graph's form."""
    return Usage(
        tokens_in=usage.tokens_in,
        tokens_out=usage.tokens_out,
        tokens_cached=usage.tokens_cached,
        tokens_reasoning=usage.tokens_reasoning,
        estimated=usage.estimated,
    )
