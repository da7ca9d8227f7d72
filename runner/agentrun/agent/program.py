"""From a manifest to what an executor runs.

Who calls: the command and the runner pod, before anything of a run is begun, so
that what cannot start says so at once (exit code 2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentrun.agent.answers import AnswerSchema, BadSchema
from agentrun.agent.ask import AgentModel
from agentrun.agent.loop import Agent, AgentLoop
from agentrun.agent.masked import MaskedModel, MaskedServer, MaskedTool
from agentrun.agent.servers import ServerEntry
from agentrun.agent.toolbox import Toolbox
from agentrun.agent.window import Window
from agentrun.graph.types import NodeKind, Spawned
from agentrun.log.masks import Masks
from agentrun.models import Model, build_model
from agentrun.models.base import ModelSetupError
from agentrun.spec import (
    CONFIG_DIR_VARIABLE,
    AgentRunSpec,
    AgentSpec,
    HttpArguments,
    HttpHeader,
    HttpTool,
    OpenApiTools,
    SecretSource,
    ToolSpec,
)
from agentrun.spec.approval import ApprovalRule
from agentrun.spec.errors import Path as FieldPath
from agentrun.spec.mcp import McpServer as McpSpec
from agentrun.spec.model import FallbackModel
from agentrun.tools import Effect, HttpEndpoint, HttpSession, OnUnknown, Tool, ToolSetupError, build_tool
from agentrun.tools.base import ToolServer
from agentrun.tools.mcp import McpCommand, McpEndpoint, McpServer

Secrets = Mapping[tuple[str, str], str]
"""(name, key) of a Secret → its value."""


class SetupError(Exception):
    """The run cannot start as it is written. One clear line."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """What to run. `budget` is in the manifest's form."""

    kinds: Mapping[str, NodeKind]
    root: Spawned
    concurrency: int
    budget: Mapping[str, Any]
    models: list[Model] = field(default_factory=list)
    tools: list[Tool] = field(default_factory=list)
    servers: list[ToolServer] = field(default_factory=list)

    async def close(self) -> None:
        """Closes the connections of models and tools. Servers, which may be slow to go, side by side."""
        closing = [asyncio.ensure_future(server.close()) for server in self.servers]
        try:
            for model in self.models:
                await model.close()
            for tool in self.tools:
                await tool.close()
        finally:
            await asyncio.gather(*closing, return_exceptions=True)


def prepare(
    spec: AgentRunSpec, secrets: Secrets, *, hidden: Iterable[str] = (), config_dir: Path | None = None
) -> Program:
    """Builds models and tools (imports their libraries: seconds, for real providers).

    Texts of the spec are resolved already. `hidden`: further values that answers must not bring into
    the log, such as the store's password. `config_dir`: where ConfigMaps are folders. Raises SetupError.
    """
    if spec.program is not None:
        raise SetupError("spec.program: graphs written in Python cannot be run by this version")
    assert spec.agent is not None and spec.prompt is not None
    builder = _Builder(secrets, Masks([*secrets.values(), *hidden]), config_dir)
    agents = {"": builder.agent("", spec.agent, "spec.agent")}
    for index, sub in enumerate(spec.agents):
        agents[sub.name] = builder.agent(sub.name, sub, f"spec.agents[{index}]", sub.description)
    loop = AgentLoop(agents, spec.prompt)
    return Program(
        kinds=loop.kinds(),
        root=loop.root,
        concurrency=spec.concurrency,
        budget=spec.budget.model_dump(mode="json", by_alias=True, exclude_none=True),
        models=builder.models,
        tools=builder.tools,
        servers=builder.servers,
    )


class _Builder:
    def __init__(self, secrets: Secrets, masks: Masks, config_dir: Path | None) -> None:
        self.models: list[Model] = []
        self.tools: list[Tool] = []
        self.servers: list[ToolServer] = []
        self._secrets = secrets
        self._masks = masks
        self._config_dir = config_dir
        self._session = HttpSession()

    def agent(self, name: str, spec: AgentSpec, path: str, description: str = "") -> Agent:
        tools: dict[str, Tool] = {}
        agents: dict[str, str] = {}
        approvals: dict[str, ApprovalRule] = {}
        servers: list[ServerEntry] = []
        for index, tool in enumerate(spec.tools):
            if tool.agent is not None:
                agents[tool.tool_name] = tool.agent
                if tool.require_approval is not None:
                    approvals[tool.tool_name] = tool.require_approval
            elif tool.mcp is not None:
                servers.append(self._server(tool, tool.mcp, f"{path}.tools[{index}]"))
            elif tool.openapi is not None:
                servers.append(self._api(tool, tool.openapi, f"{path}.tools[{index}]"))
            else:
                tools[tool.tool_name] = self._tool(tool, f"{path}.tools[{index}]")
        answer = _answer(spec, path)
        told = [spec.instructions, answer.instructions if answer is not None else None]
        return Agent(
            name=name,
            instructions="\n\n".join(text for text in told if text),
            models=[self._model(model, f"{path}.{_dotted(where)}") for where, model in spec.models()],
            toolbox=Toolbox(tools),
            agents=agents,
            servers=servers,
            approvals=approvals,
            description=description,
            shown_bytes=spec.context.result_bytes,
            window=_window(spec),
            answer=answer,
        )

    def _model(self, spec: FallbackModel, path: str) -> AgentModel:
        settings = spec.settings.model_dump(mode="json", by_alias=True, exclude_none=True)
        script = None
        if spec.script is not None:
            turns = spec.script.turns
            script = [turn.model_dump(mode="json", by_alias=True, exclude_defaults=True) for turn in turns]
        try:
            model = build_model(
                spec.name,
                base_url=spec.base_url,
                api_key=self._secret(spec.api_key_from),
                settings=settings,
                script=script,
            )
        except ModelSetupError as error:
            raise SetupError(f"{path}: {error}") from error
        self.models.append(model)
        key = spec.api_key_from.secret_key_ref if spec.api_key_from is not None else None
        return AgentModel(
            model=MaskedModel(model, self._masks),
            settings=settings,
            timeout_seconds=spec.settings.timeout_seconds,
            limits=(spec.name, spec.base_url, key and (key.name, key.key)),
        )

    def _tool(self, spec: ToolSpec, path: str) -> Tool:
        try:
            tool = build_tool(
                name=spec.tool_name,
                python=spec.python.entrypoint if spec.python else None,
                http=self._endpoint(spec.http) if spec.http else None,
                session=self._session,
                description=spec.description or "",
                parameters=spec.parameters,
                effect=Effect(spec.effect.value) if spec.effect else Effect.UNSAFE,
                on_unknown=OnUnknown(spec.on_unknown.value),
                timeout_seconds=spec.timeout_seconds,
                approval=spec.require_approval,
            )
        except ToolSetupError as error:
            raise SetupError(f"{path}: {error}") from error
        self.tools.append(tool)
        return MaskedTool(tool, self._masks)

    def _server(self, spec: ToolSpec, mcp: McpSpec, path: str) -> ServerEntry:
        pairs = [(header.name, header.value, header.value_from) for header in mcp.headers]
        pairs += [(variable.name, variable.value, variable.value_from) for variable in mcp.env]
        values = {name: value or self._secret(source) or "" for name, value, source in pairs}
        where: McpEndpoint | McpCommand
        if mcp.url is not None:
            where = McpEndpoint(url=mcp.url, headers=values)
        else:
            where = McpCommand(command=mcp.command or (), env=values)
        try:
            server = McpServer(
                where,
                start_timeout_seconds=mcp.start_timeout_seconds,
                secrets=[values[name] for name, _, source in pairs if source is not None],
            )
        except ToolSetupError as error:
            raise SetupError(f"{path}.mcp: {error}") from error
        return self._entry(spec, server, mcp)

    def _api(self, spec: ToolSpec, api: OpenApiTools, path: str) -> ServerEntry:
        from agentrun.tools.openapi import OpenApiServer, OpenApiSource  # only for who has one

        file = None
        if api.document_from is not None:
            ref = api.document_from.config_map_key_ref
            if self._config_dir is None:
                raise SetupError(
                    f"{path}.openapi.documentFrom: cannot be read: set {CONFIG_DIR_VARIABLE} to the "
                    f"folder that holds {ref.name}/{ref.key}"
                )
            file = self._config_dir / ref.name / ref.key
        try:
            server = OpenApiServer(
                source=OpenApiSource(url=api.url or "", file=file, document=api.document),
                session=self._session,
                base_url=api.base_url or "",
                headers=self._headers(api.headers),
            )
        except ToolSetupError as error:
            raise SetupError(f"{path}.openapi: {error}") from error
        return self._entry(spec, server, api)

    def _entry(self, spec: ToolSpec, server: ToolServer, told: McpSpec | OpenApiTools) -> ServerEntry:
        self.servers.append(server)
        return ServerEntry(
            name=spec.tool_name,
            server=MaskedServer(server, self._masks),
            optional=told.optional,
            allow=told.allow,
            deny=told.deny,
            effect=Effect(spec.effect.value) if spec.effect else None,
            on_unknown=OnUnknown(spec.on_unknown.value),
            timeout_seconds=spec.timeout_seconds,
            approval=spec.require_approval,
        )

    def _endpoint(self, spec: HttpTool) -> HttpEndpoint:
        in_body = spec.arguments is HttpArguments.BODY
        return HttpEndpoint(
            url=spec.url,
            method=spec.method,
            headers=self._headers(spec.headers),
            arguments="body" if in_body else "query",
        )

    def _headers(self, headers: Iterable[HttpHeader]) -> dict[str, str]:
        found = {}
        for header in headers:
            value = header.value if header.value is not None else self._secret(header.value_from)
            found[header.name] = value or ""
        return found

    def _secret(self, source: SecretSource | None) -> str | None:
        if source is None:
            return None
        ref = source.secret_key_ref
        return self._secrets[(ref.name, ref.key)]


def _window(spec: AgentSpec) -> Window | None:
    """What the agent's conversation is kept inside of: the smallest window of its models."""
    compaction = spec.context.compaction
    known = [model.context_window for _, model in spec.models() if model.context_window]
    if compaction is None or not known:
        return None
    return Window(tokens=min(known), at=compaction.at_percent / 100, keep=compaction.keep_percent / 100)


def _answer(spec: AgentSpec, path: str) -> AnswerSchema | None:
    if spec.output_schema is None:
        return None
    try:
        return AnswerSchema(spec.output_schema)
    except BadSchema as error:
        raise SetupError(f"{path}.outputSchema: {error}") from error


def _dotted(path: FieldPath) -> str:
    """As errors of the manifest name it."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)[1:]
