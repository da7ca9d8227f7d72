"""The agent loop as node kinds: a graph that grows a turn at a time.

    append_user_message → list_tools … → run_assistant_turn → run_tool_batch → tool_call … →
    run_assistant_turn → … → finalize_run

An agent without tool servers has no list_tools.

Who calls: the executor. What holds: a step's record holds what the step produced,
never the messages so far; a batch is a barrier over its calls, whose results the
next turn finds complete; a call to a model or a tool is made behind a fresh
confirmation and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agentrun.agent import results, toolbox
from agentrun.agent.answers import AnswerSchema
from agentrun.agent.approval import Consent, consent
from agentrun.agent.ask import AgentModel, ask, usage_of
from agentrun.agent.compaction import Compaction, Job, may_follow
from agentrun.agent.conversation import Conversation, calls_of, text_of
from agentrun.agent.servers import Offered, ServerEntry, list_steps, list_tools, offered, require_choices
from agentrun.agent.steps import (
    LOOP_WINDOW_TURNS,
    OUTPUT_INVALID,
    after_misfit,
    after_turn,
    is_answer,
    is_final,
    is_loop,
)
from agentrun.agent.toolbox import Told, Toolbox
from agentrun.agent.window import Window
from agentrun.graph.types import NodeContext, NodeError, NodeKind, NodeResult, Spawned, scope_of
from agentrun.models import ModelRequest
from agentrun.models.base import ToolDefinition
from agentrun.models.limits import RateLimits
from agentrun.proto import log_pb2
from agentrun.proto import transcript_pb2 as pb
from agentrun.spec.agent import READ_RESULT
from agentrun.spec.approval import ApprovalRule
from agentrun.tools import ArgumentsError, parse_arguments

DEPTH_MAX = 8
"""Agents within agents."""

_TASK = {"type": "string", "description": "What to do, with all that is needed to do it."}
_TASK_SCHEMA = {"type": "object", "properties": {"task": _TASK}, "required": ["task"]}


@dataclass(frozen=True, kw_only=True)
class Agent:
    """One agent of a manifest, ready to run. `models`: its own, then its fallbacks.
    `agents`: tool name → the sub-agent that it calls. `shown_bytes`: of one tool result. `window`: what
    its conversation is kept inside of, if any."""

    name: str
    instructions: str
    models: Sequence[AgentModel]
    toolbox: Toolbox
    agents: Mapping[str, str] = field(default_factory=dict)
    servers: Sequence[ServerEntry] = ()
    approvals: Mapping[str, ApprovalRule] = field(default_factory=dict)
    """Of calls of sub-agents, by the tool's name; a tool has its own."""
    description: str = ""
    shown_bytes: int = results.SHOWN_BYTES
    window: Window | None = None
    answer: AnswerSchema | None = None


@dataclass
class _Scope:
    """What this process remembers of one agent at work."""

    agent: Agent
    conversation: Conversation
    offered: Offered | None = None

    async def toolbox(self, node: NodeContext) -> Toolbox:
        """The agent's own tools, and those that its servers have offered before its first turn."""
        if self.agent.servers and self.offered is None:
            taken = [*self.agent.toolbox.tools, *self.agent.agents, READ_RESULT]
            self.offered = await offered(self.agent.servers, taken, node)
        if self.offered is None:
            return self.agent.toolbox
        return Toolbox({**self.agent.toolbox.tools, **self.offered.tools})

    @property
    def instructions(self) -> str:
        """The agent's, and what of its tools is missing."""
        return self.agent.instructions + (self.offered.note if self.offered else "")


class AgentLoop:
    """The node kinds of a run. `agents` holds the run's own agent under ""."""

    def __init__(self, agents: Mapping[str, Agent], prompt: str) -> None:
        self._agents = agents
        self._limits = RateLimits()
        self._compaction = Compaction(self._limits)
        self._scopes = {"": _Scope(agents[""], Conversation(prompt))}

    @property
    def root(self) -> Spawned:
        """The first step."""
        message = pb.UserMessage(prompt=True)
        return Spawned(kind="append_user_message", name="user-1", input=message.SerializeToString())

    def kinds(self) -> dict[str, NodeKind]:
        """By name."""
        steps = [
            NodeKind(name="append_user_message", run=self.append_user_message, free=True),
            NodeKind(name="list_tools", run=self.list_tools),
            NodeKind(name="run_assistant_turn", run=self.run_assistant_turn, turn=True),
            NodeKind(name="run_tool_batch", run=self.run_tool_batch, free=True),
            NodeKind(name="tool_call", run=self.tool_call),
            NodeKind(name="finalize_run", run=self.finalize_run, free=True),
            *self._compaction.kinds(),
        ]
        return {kind.name: kind for kind in steps}

    # --- the steps

    async def append_user_message(self, node: NodeContext) -> NodeResult:
        """Says what its input holds. The first one has the tool servers list their tools."""
        number = node.name.removeprefix("user-")
        lists = list_steps(self._scope(node).agent.servers) if number == "1" else []
        turn = Spawned(
            kind="run_assistant_turn", name=f"turn-{number}", parents=[step.name for step in lists]
        )
        return NodeResult(output=node.input, spawned=[*lists, turn])

    async def list_tools(self, node: NodeContext) -> NodeResult:
        """What one tool server offers."""
        name = node.name.removeprefix("list-")
        entry = next(entry for entry in self._scope(node).agent.servers if entry.name == name)
        return await list_tools(entry, node)

    async def run_assistant_turn(self, node: NodeContext) -> NodeResult:
        """Asks the model for one turn."""
        scope = self._scope(node)
        number = _number(node)
        tools = self._definitions(scope.agent, await scope.toolbox(node))
        require_choices(scope.agent.models, [tool.name for tool in tools])
        recent = await self._recent(node, scope, number - 1)
        job = Job(
            base=ModelRequest(
                instructions=scope.instructions,
                messages=(),
                tools=tools,
                turn=number,
                output_schema=scope.agent.answer.schema if scope.agent.answer else None,
            ),
            models=scope.agent.models,
            conversation=scope.conversation,
            window=scope.agent.window,
            before=recent[-1] if recent else None,
        )
        request = await self._compaction.fit(node, job)
        response = await ask(
            node,
            scope.agent.models,
            request,
            before=job.before,
            conversation_tokens=scope.conversation.tokens,
            limits=self._limits,
            mends=lambda error: may_follow(node, error, job),
        )
        return NodeResult(
            output=response.turn.SerializeToString(),
            spawned=[await self._after(node, scope, [*recent, response.turn], number)],
            usage=usage_of(response.usage),
        )

    async def run_tool_batch(self, node: NodeContext) -> NodeResult:
        """One node for each call of the turn, and the next turn behind all of them."""
        scope = self._scope(node)
        number = _number(node)
        turn = await scope.conversation.turn(node, number)
        if is_loop(await self._recent(node, scope, number)):
            message = f"the last {LOOP_WINDOW_TURNS} turns asked for the same calls"
            raise NodeError("LoopDetected", message, retryable=False)
        names = [f"call-{number}-{index}" for index in range(len(calls_of(turn)))]
        calls = [Spawned(kind="tool_call", name=name) for name in names]
        following = Spawned(kind="run_assistant_turn", name=f"turn-{number + 1}", parents=names)
        return NodeResult(spawned=[*calls, following])

    async def tool_call(self, node: NodeContext) -> NodeResult:
        """Makes one call of a turn; its result, whatever it is, is for the model."""
        scope = self._scope(node)
        number, index = node.name.removeprefix("call-").split("-")
        turn = await scope.conversation.turn(node, int(number))
        call = calls_of(turn)[int(index)]
        tools = await scope.toolbox(node)
        if turn.truncated:
            told = Told(toolbox.result(call.name, toolbox.NOT_RUN, toolbox.CUT_OFF))
        elif call.name == READ_RESULT:
            text, found = await results.read_result(node, call.arguments, scope.agent.shown_bytes)
            told = Told(toolbox.result(call.name, toolbox.OK if found else toolbox.ERROR, text))
        elif call.name in scope.agent.agents:
            given = await consent(node, call, scope.agent.approvals.get(call.name))
            told = Told(given.denial() if given.denied else await self._call_agent(node, scope.agent, given))
        elif tools.has(call.name):
            told = await tools.call(node, call)
        else:
            known = [tool.name for tool in self._definitions(scope.agent, tools)]
            told = Told(toolbox.unknown_tool(call.name, known))
        result, whole = results.shown(told.result, node.name, scope.agent.shown_bytes)
        return NodeResult(output=result.SerializeToString(), attachments=[*told.attachments, *whole])

    async def finalize_run(self, node: NodeContext) -> NodeResult:
        """The answer, or the reason why there is none."""
        scope = self._scope(node)
        turn = await scope.conversation.turn(node, _number_of_last_turn(node))
        text, problems = text_of(turn), list[str]()
        if scope.agent.answer is not None:
            judged = scope.agent.answer.judge(text)
            text, problems = judged.text, judged.problems
        if failure := node.input.decode():
            why = "; ".join(problems) if failure == OUTPUT_INVALID else ""
            raise NodeError(failure, f"the model's last turn: {why or failure}", retryable=False)
        final = None
        if not scope_of(node.node_id):
            final = log_pb2.Final(outcome=log_pb2.OUTCOME_SUCCEEDED, reason="Completed")
        return NodeResult(output=pb.RunResult(text=text).SerializeToString(), final=final)

    # --- sub-agents

    async def _call_agent(self, node: NodeContext, agent: Agent, given: Consent) -> pb.ToolResult:
        """A graph of its own below this node; its answer is the call's result."""
        call = given.part
        try:
            task = parse_arguments(call.arguments).get("task")
        except ArgumentsError as error:
            return toolbox.result(call.name, toolbox.NOT_RUN, str(error))
        if not isinstance(task, str) or not task.strip():
            return toolbox.result(
                call.name, toolbox.NOT_RUN, "Not run: 'task' must be a text that says what to do."
            )
        if node.node_id.count("/") + 1 >= DEPTH_MAX:
            text = f"Not run: agents call each other at most {DEPTH_MAX} deep."
            return toolbox.result(call.name, toolbox.NOT_RUN, text)
        self._scopes[node.node_id + "/"] = _Scope(self._agents[agent.agents[call.name]], Conversation(""))
        message = pb.UserMessage(text=task)
        root = Spawned(kind="append_user_message", name="user-1", input=message.SerializeToString())
        try:
            answer = pb.RunResult.FromString(await node.subgraph(root))
        except NodeError as error:
            text = f"Error: {error.reason}: {error.message}"
            return given.tell(toolbox.result(call.name, toolbox.ERROR, text))
        finally:
            self._scopes.pop(node.node_id + "/", None)
        return given.tell(toolbox.result(call.name, toolbox.OK, answer.text))

    # --- of use to several

    async def _after(
        self, node: NodeContext, scope: _Scope, turns: Sequence[pb.AssistantTurn], number: int
    ) -> Spawned:
        """What follows the last of `turns`, which is turn `number`."""
        following = after_turn(turns, number)
        if scope.agent.answer is None or not is_answer(following):
            return following
        problems = scope.agent.answer.judge(text_of(turns[-1])).problems
        if not problems:
            return following
        earlier = [await scope.conversation.turn(node, k) for k in range(1, number)]
        return after_misfit(problems, sum(map(is_final, earlier)), number)

    def _scope(self, node: NodeContext) -> _Scope:
        return self._scopes[scope_of(node.node_id)]

    def _definitions(self, agent: Agent, tools: Toolbox) -> list[ToolDefinition]:
        """In one order, always. Whoever has a tool can read its results, from the first turn on:
        a tool that came when a result was first cut would cost the provider's cache all of the rest."""
        agents = [
            ToolDefinition(name=tool, description=self._agents[name].description, parameters=_TASK_SCHEMA)
            for tool, name in agent.agents.items()
        ]
        found = [*tools.definitions, *agents]
        return [*found, results.DEFINITION] if found else found

    async def _recent(self, node: NodeContext, scope: _Scope, number: int) -> list[pb.AssistantTurn]:
        """The turns up to `number`, as many as a decision looks at."""
        first = max(1, number - LOOP_WINDOW_TURNS + 1)
        return [await scope.conversation.turn(node, k) for k in range(first, number + 1)]


def _number(node: NodeContext) -> int:
    return int(node.name.rpartition("-")[2])


def _number_of_last_turn(node: NodeContext) -> int:
    return max(int(name.rpartition("-")[2]) for name in node.outputs("run_assistant_turn"))
