"""Rules between fields, in CEL, so that the API server refuses what can never run.

Used by `crd`. These repeat the validators of `agentrun.spec` as far as CEL can
state them within the server's cost bounds; the operator checks the rest and says
so in the object's status. Invariant: what runs never changes, whoever asks.
"""

from __future__ import annotations

from agentrun.spec import PROVIDERS, AgentRunSpec
from agentrun.spec.definition import NOT_DEFINITION

Rule = dict[str, str]

MUTABLE = NOT_DEFINITION - {"run_id"}
"""Fields of the spec that may change at any time (by their names in Python)."""


def _rule(rule: str, message: str, field: str = "") -> Rule:
    result = {"rule": rule, "message": message}
    if field:
        result["fieldPath"] = f".{field}"
    return result


def _forbidden(field: str, message: str) -> Rule:
    return _rule(f"!has(self.{field})", message, field)


def _immutable() -> list[Rule]:
    found = []
    for name, info in AgentRunSpec.model_fields.items():
        if name in MUTABLE:
            continue
        field = info.alias or name
        found.append(
            _rule(
                f"has(self.{field}) == has(oldSelf.{field})"
                f" && (!has(self.{field}) || self.{field} == oldSelf.{field})",
                f"{field} cannot be changed once the object exists; create a new AgentRun",
                field,
            )
        )
    return found


_SPEC = [
    _rule("has(self.agent) != has(self.program)", "must have exactly one of agent and program"),
    _rule("!(has(self.prompt) && has(self.promptFrom))", "must have at most one of prompt and promptFrom"),
    _rule(
        "!has(self.agent) || has(self.prompt) || has(self.promptFrom)",
        "an agent needs exactly one of prompt and promptFrom",
    ),
    _rule(
        "!has(self.program) || !has(self.agents) || size(self.agents) == 0",
        "sub-agents are for an agent's tools, and this run is a program",
        "agents",
    ),
    _rule(
        "!has(self.agents) || self.agents.all(a, self.agents.exists_one(b, b.name == a.name))",
        "sub-agents must have unique names",
        "agents",
    ),
    _rule(
        "!has(self.agent) || !has(self.agent.tools) || self.agent.tools.all(t, !has(t.agent)"
        " || (has(self.agents) && self.agents.exists(a, a.name == t.agent)))",
        "a tool of the agent names a sub-agent that is not in spec.agents",
        "agent.tools",
    ),
    _rule(
        "!has(oldSelf.shutdown) || (has(self.shutdown)"
        " && (self.shutdown == oldSelf.shutdown || self.shutdown == 'Terminate'))",
        "there is no way back: Stop may become Terminate, and neither may be removed",
        "shutdown",
    ),
    *_immutable(),
]

_AGENT = [
    _rule(
        "!(has(self.instructions) && has(self.instructionsFrom))",
        "must have at most one of instructions and instructionsFrom",
    ),
    _rule(
        "!has(self.context) || !has(self.context.compaction) || has(self.model.contextWindow)",
        "context.compaction needs model.contextWindow",
        "context.compaction",
    ),
    _rule(
        "!has(self.tools) || self.tools.all(t, (has(t.name) ? t.name : has(t.agent) ? t.agent : '')"
        " != 'read_result')",
        "read_result is the name of a built-in tool",
        "tools",
    ),
]

_MAIN_AGENT = [
    _rule(
        "!has(self.tools) || self.tools.all(t, self.tools.exists_one(u,"
        " (has(u.name) ? u.name : has(u.agent) ? u.agent : '') =="
        " (has(t.name) ? t.name : has(t.agent) ? t.agent : '')))",
        "tools must have unique names",
        "tools",
    ),
]

_KINDS = (
    "[has(self.python), has(self.http), has(self.agent), has(self.mcp), has(self.openapi)]"
    ".filter(kind, kind).size() == 1"
)
_TOOL = [
    _rule(_KINDS, "must have exactly one of python, http, agent, mcp and openapi"),
    _rule("has(self.agent) || has(self.name)", "a tool of kind python or http, and a server, needs a name"),
    _rule(
        # Nothing here can say has(self.parameters): CEL sees no field that may hold anything.
        "!has(self.http) || has(self.description)",
        "a tool of kind http needs description and parameters",
    ),
    _rule(
        "!has(self.agent) || !(has(self.effect) || has(self.onUnknown) || has(self.timeoutSeconds))",
        "effect, onUnknown and timeoutSeconds have no meaning for a sub-agent",
    ),
    _rule(
        "!(has(self.mcp) || has(self.openapi)) || !has(self.description)",
        "a server describes its tools itself: no description",
    ),
]
_ONE_VALUE = [_rule("has(self.value) != has(self.valueFrom)", "must have exactly one of value and valueFrom")]

_APPROVAL = [
    _rule(
        "(self.policy == 'When') == (has(self.when) && size(self.when) > 0)",
        "policy When needs at least one condition in when, and policy Always takes none",
        "when",
    ),
]
_CONDITION = [
    _rule(
        "self.operator in ['Exists', 'DoesNotExist'] ? !has(self.values) || size(self.values) == 0"
        " : has(self.values) && size(self.values) > 0",
        "Exists and DoesNotExist take no values, the other operators at least one",
        "values",
    ),
    _rule(
        # That it is a number the operator says: so many conditions are too dear for a pattern.
        "!(self.operator in ['Gt', 'Lt']) || (has(self.values) && size(self.values) == 1)",
        'Gt and Lt take one number as a string, such as ["100"]',
        "values",
    ),
]

_SCRIPTED = "self.name.startsWith('scripted:')"
_MODEL = [
    _forbidden(
        "scriptFile",
        "is read only by the command, from a manifest on disk; write the script inline here",
    ),
    _rule(f"!{_SCRIPTED} || has(self.script) || has(self.scriptFile)", "a scripted model needs script"),
    _rule(f"{_SCRIPTED} || !has(self.script)", "is for scripted models only", "script"),
    _rule(
        f"!{_SCRIPTED} || !(has(self.baseURL) || has(self.apiKeyFrom))",
        "a scripted model calls nothing: it takes no baseURL and no apiKeyFrom",
    ),
]
_MODEL_NAME = [
    _rule(
        " || ".join(f"self.startsWith('{provider}:')" for provider in PROVIDERS),
        f"must be provider:model; providers are: {', '.join(PROVIDERS)}",
    )
]
_NOT_BLANK = [_rule("self.trim() != ''", "must not be blank")]

RULES: dict[str, list[Rule]] = {
    "AgentRunSpec": _SPEC,
    "AgentRunSpec.prompt": _NOT_BLANK,
    "AgentSpec": _AGENT + _MAIN_AGENT,
    "SubAgentSpec": _AGENT,
    "AgentSpec.instructions": _NOT_BLANK,
    "SubAgentSpec.instructions": _NOT_BLANK,
    "ModelSpec": _MODEL,
    "FallbackModel": _MODEL,
    "ModelSpec.name": _MODEL_NAME,
    "FallbackModel.name": _MODEL_NAME,
    "ToolSpec": _TOOL,
    "ApprovalRule": _APPROVAL,
    "ApprovalCondition": _CONDITION,
    "CompactionSpec": [
        _rule(
            "(has(self.keepPercent) ? self.keepPercent : 30) + 10"
            " <= (has(self.atPercent) ? self.atPercent : 80)",
            "keepPercent must be at most atPercent less 10",
        )
    ],
    "HttpTool": [
        _rule(
            "!has(self.method) || self.method != 'GET' || (has(self.arguments) && self.arguments == 'Query')",
            "a GET request has no body: set arguments to Query, or another method",
        )
    ],
    "HttpHeader": _ONE_VALUE,
    "EnvVar": _ONE_VALUE,
    "McpServer": [
        _rule("has(self.url) != has(self.command)", "must have exactly one of url and command"),
        _rule("!has(self.headers) || has(self.url)", "has a meaning only with url", "headers"),
        _rule("!has(self.env) || has(self.command)", "has a meaning only with command", "env"),
    ],
    "OpenApiTools": [
        # A third one, document, may hold anything: no rule can see it.
        _rule(
            "!(has(self.url) && has(self.documentFrom))",
            "must have exactly one of url, documentFrom and document",
        )
    ],
}
