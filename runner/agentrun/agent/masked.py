"""Models, tools and tool servers whose answers have lost the run's secrets.

Who calls: `program`, around everything that it builds. What holds: a known secret that
comes back in an answer, an error, a list of tools or a file of text is masked before
anybody keeps it, tells a model of it, or cuts it. What is sent is never changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from agentrun.log.masks import Masks
from agentrun.models import Model, ModelError, ModelRequest, ModelResponse
from agentrun.models.base import Delta, ToolDefinition
from agentrun.proto import log_pb2
from agentrun.spec.approval import ApprovalRule
from agentrun.tools import Effect, OnUnknown, Tool, ToolCall, ToolError, ToolOutput
from agentrun.tools.base import ServerTool, ToolServer, ToolServerUnavailable


class MaskedModel:
    """A model."""

    def __init__(self, model: Model, masks: Masks) -> None:
        self._model = model
        self._masks = masks

    @property
    def name(self) -> str:
        return self._model.name

    async def request(self, request: ModelRequest) -> ModelResponse:
        deltas = _Deltas(self._masks, request.on_delta)
        try:
            response = await self._model.request(replace(request, on_delta=deltas.take))
        except ModelError as error:
            _mask(error, self._masks)
            raise
        deltas.rest()
        self._masks.message(response.turn)
        return response

    async def close(self) -> None:
        await self._model.close()


class _Deltas:
    """Pieces of an answer: what may be the beginning of a secret waits for the piece behind it."""

    def __init__(self, masks: Masks, tell: Callable[[Delta], None]) -> None:
        self._masks = masks
        self._tell = tell
        self._held: Delta | None = None

    def take(self, delta: Delta) -> None:
        """One piece."""
        held, self._held = self._held, None
        if held is not None and held.kind == delta.kind:
            delta = replace(delta, text=held.text + delta.text)
        elif held is not None:
            self._tell(held)
        text = self._masks.text(delta.text)
        # The piece of a call is a whole name, which nothing goes on with.
        if delta.kind != "call" and (length := self._masks.beginning(text)):
            self._held = replace(delta, text=text[-length:])
            text = text[:-length]
        if text:
            self._tell(replace(delta, text=text))

    def rest(self) -> None:
        """The answer is whole."""
        if self._held is not None:
            self._tell(self._held)
            self._held = None


class MaskedTool:
    """A tool."""

    def __init__(self, tool: Tool, masks: Masks) -> None:
        self._tool = tool
        self._masks = masks

    @property
    def definition(self) -> ToolDefinition:
        return self._tool.definition

    @property
    def effect(self) -> Effect:
        return self._tool.effect

    @property
    def on_unknown(self) -> OnUnknown:
        return self._tool.on_unknown

    @property
    def approval(self) -> ApprovalRule | None:
        return self._tool.approval

    @property
    def timeout_seconds(self) -> float:
        return self._tool.timeout_seconds

    async def call(self, call: ToolCall) -> ToolOutput:
        try:
            return _output(await self._tool.call(call), self._masks)
        except ToolError as error:
            _mask(error, self._masks)
            raise

    async def close(self) -> None:
        await self._tool.close()


class MaskedServer:
    """A tool server. What it says of a tool is masked, too; the names that it knows them by are not."""

    def __init__(self, server: ToolServer, masks: Masks) -> None:
        self._server = server
        self._masks = masks

    async def list_tools(self, before_send: Callable[[], Awaitable[None]]) -> Sequence[ServerTool]:
        try:
            listed = await self._server.list_tools(before_send)
        except ToolServerUnavailable as error:
            _mask(error, self._masks)
            raise
        return [self._masked(tool) for tool in listed]

    def _masked(self, tool: ServerTool) -> ServerTool:
        """Also the schema: a default may be what the server was given in its environment."""
        try:
            parameters = self._masks.value(tool.parameters)
        except RecursionError:
            parameters = False  # as a schema that is none: nobody could be told of it
        return replace(tool, description=self._masks.text(tool.description), parameters=parameters)

    async def call_tool(self, tool: ServerTool, call: ToolCall, timeout_seconds: float) -> ToolOutput:
        try:
            return _output(await self._server.call_tool(tool, call, timeout_seconds), self._masks)
        except ToolError as error:
            _mask(error, self._masks)
            raise

    async def close(self) -> None:
        await self._server.close()


def _output(output: ToolOutput, masks: Masks) -> ToolOutput:
    kept = [
        log_pb2.Payload(inline=masks.data(payload.inline), media_type=payload.media_type)
        for payload in output.attachments
    ]
    return replace(output, content=masks.text(output.content), attachments=kept)


def _mask(error: ModelError | ToolError | ToolServerUnavailable, masks: Masks) -> None:
    error.message = masks.text(error.message)
    error.args = tuple(masks.text(str(arg)) for arg in error.args)
