"""Objects and changes that the API server must refuse, with what it says.

The unit tests hold the typed models to them; a test on a cluster sends them to a
real API server. `REFUSED` is by title: how to spoil a good object, and a part of
the server's message. `CHANGES` likewise for an object that exists already; an
empty message means that the change is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Spec = dict[str, Any]
Edit = Callable[[Spec], object]


def good() -> dict[str, Any]:
    """An object that is accepted, with something in every kind of place."""
    return {
        "apiVersion": "agentrun.dev/v1alpha1",
        "kind": "AgentRun",
        "metadata": {"name": "good"},
        "spec": {
            "prompt": "Hello",
            "budget": {"tokens": 5},
            "concurrency": 4,
            "podTemplate": {"spec": {"nodeSelector": {"disk": "fast"}}},
            "agent": {
                "model": {
                    "name": "scripted:good",
                    "script": {
                        "turns": [
                            {"toolCalls": [{"name": "count", "arguments": {"text": "a b"}}]},
                            {"text": "Two."},
                        ]
                    },
                },
                "outputSchema": {"type": "object", "properties": {"answer": {"type": "string"}}},
                "tools": [{"name": "count", "python": {"entrypoint": "tools:count"}}],
            },
        },
    }


def _model(**changes: Any) -> Edit:
    def edit(spec: Spec) -> None:
        model = spec["agent"]["model"]
        model.update(changes)
        for key in [key for key, value in model.items() if value is None]:
            del model[key]

    return edit


def _tool(**tool: Any) -> Edit:
    return lambda spec: spec["agent"].update(tools=[tool])


def _approval(policy: str = "When", *conditions: dict[str, Any]) -> Edit:
    rule: dict[str, Any] = {"policy": policy}
    if conditions:
        rule["when"] = list(conditions)
    return _tool(name="x", python={"entrypoint": "a:b"}, requireApproval=rule)


def _condition(operator: str, *values: str) -> Edit:
    found: dict[str, Any] = {"argument": "amount", "operator": operator}
    return _approval("When", {**found, "values": list(values)} if values else found)


def _http(**http: Any) -> Edit:
    return _tool(
        name="x", description="x", parameters={"type": "object"}, http={"url": "http://tools.test", **http}
    )


_REFERENCE = {"configMapKeyRef": {"name": "texts", "key": "prompt"}}
_SUB_AGENT = {"name": "helper", "model": {"name": "openai:gpt-5"}}

REFUSED: dict[str, tuple[Edit, str]] = {
    "nothing runs": (lambda s: s.pop("agent"), "must have exactly one of agent and program"),
    "two things run": (
        lambda s: s.update(program={"entrypoint": "graphs:main"}),
        "must have exactly one of agent and program",
    ),
    "no prompt": (lambda s: s.pop("prompt"), "an agent needs exactly one of prompt and promptFrom"),
    "two prompts": (
        lambda s: s.update(promptFrom=_REFERENCE),
        "must have at most one of prompt and promptFrom",
    ),
    "blank prompt": (lambda s: s.update(prompt=" \n"), "must not be blank"),
    "long prompt": (lambda s: s.update(prompt="a" * 65537), "spec.prompt"),
    "two instructions": (
        lambda s: s["agent"].update(instructions="x", instructionsFrom=_REFERENCE),
        "must have at most one of instructions and instructionsFrom",
    ),
    "unknown field": (lambda s: s.update(promt="x"), "promt"),
    "unknown provider": (
        _model(name="opnai:x", script=None),
        "must be provider:model; providers are: scripted",
    ),
    "a file in a cluster": (_model(script=None, scriptFile="x.yaml"), "write the script inline here"),
    "no script": (_model(script=None), "a scripted model needs script"),
    "script for a real model": (_model(name="openai:x"), "is for scripted models only"),
    "scripted model with an address": (_model(baseURL="http://a.test"), "a scripted model calls nothing"),
    "no address": (_model(name="openai:x", script=None, baseURL="ftp://a.test"), "spec.agent.model.baseURL"),
    "address with credentials": (
        _model(name="openai:x", script=None, baseURL="http://me:pw@a.test"),
        "spec.agent.model.baseURL",
    ),
    "topP of nothing": (_model(settings={"topP": 0}), "should be greater than 0"),
    "tool of two kinds": (
        _tool(name="x", python={"entrypoint": "a:b"}, http={"url": "http://a.test"}),
        "must have exactly one of python, http, agent, mcp and openapi",
    ),
    "tool of no kind": (_tool(name="x"), "must have exactly one of python, http, agent, mcp and openapi"),
    "tool without a name": (_tool(python={"entrypoint": "a:b"}), "needs a name"),
    "endpoint that is not described": (
        _tool(name="x", http={"url": "http://a.test"}),
        "a tool of kind http needs description and parameters",
    ),
    "GET with a body": (_http(method="GET"), "a GET request has no body"),
    "server without an address": (
        _tool(name="x", mcp={"optional": True}),
        "must have exactly one of url and command",
    ),
    "server without a name": (_tool(mcp={"url": "http://a.test"}), "needs a name"),
    "server with a description": (
        _tool(name="x", description="x", mcp={"url": "http://a.test"}),
        "a server describes its tools itself",
    ),
    "api with two documents": (
        _tool(
            name="x",
            openapi={
                "url": "http://a.test",
                "documentFrom": {"configMapKeyRef": {"name": "a", "key": "b"}},
            },
        ),
        "must have exactly one of url, documentFrom and document",
    ),
    "server of both ways": (
        _tool(name="x", mcp={"url": "http://a.test", "command": ["x"]}),
        "must have exactly one of url and command",
    ),
    "headers of a program": (
        _tool(name="x", mcp={"command": ["x"], "headers": [{"name": "a", "value": "b"}]}),
        "has a meaning only with url",
    ),
    "variables of an address": (
        _tool(name="x", mcp={"url": "http://a.test", "env": [{"name": "A", "value": "b"}]}),
        "has a meaning only with command",
    ),
    "variable without a value": (
        _tool(name="x", mcp={"command": ["x"], "env": [{"name": "A"}]}),
        "must have exactly one of value and valueFrom",
    ),
    "header without a value": (
        _http(headers=[{"name": "a"}]),
        "must have exactly one of value and valueFrom",
    ),
    "approval when nothing": (_approval("When"), "policy When needs at least one condition"),
    "approval always and when": (
        _approval("Always", {"argument": "amount", "operator": "Exists"}),
        "policy Always takes none",
    ),
    "approval of another kind": (_approval("Never"), '"Always", "When"'),
    "condition without values": (_condition("In"), "the other operators at least one"),
    "condition with a value too many": (_condition("Exists", "1"), "take no values"),
    "comparison with two numbers": (_condition("Gt", "1", "2"), "take one number as a string"),
    "condition of another kind": (_condition("Equals", "1"), '"In", "NotIn"'),
    "argument that is no name": (
        _approval("When", {"argument": "a..b", "operator": "Exists"}),
        "spec.agent.tools[0].requireApproval.when[0].argument",
    ),
    "sub-agent that is not there": (_tool(agent="helper"), "names a sub-agent that is not in spec.agents"),
    "sub-agent with a time limit": (
        lambda s: (s.update(agents=[_SUB_AGENT]), _tool(agent="helper", timeoutSeconds=5)(s)),
        "have no meaning for a sub-agent",
    ),
    "tools of one name": (lambda s: s["agent"]["tools"].append(s["agent"]["tools"][0]), "unique names"),
    "sub-agents of one name": (lambda s: s.update(agents=[_SUB_AGENT] * 2), "unique names"),
    "runID that is none": (lambda s: s.update(runID="urn:1"), "spec.runID"),
    "budget of nothing": (lambda s: s.update(budget={"tokens": 0}), "greater than or equal to 1"),
    "budget out of range": (lambda s: s.update(budget={"tokens": 2**63}), "spec.budget.tokens"),
    "shutdown of another kind": (lambda s: s.update(shutdown="Now"), '"Stop", "Terminate"'),
}

_FIXED = "cannot be changed once the object exists"

CHANGES: dict[str, tuple[Edit, str]] = {
    "nothing": (lambda s: None, ""),
    "budget": (lambda s: s.update(budget={"tokens": 9, "turns": 3}), ""),
    "no budget": (lambda s: s.pop("budget"), ""),
    "levels": (lambda s: s.update(suspend=True, ttlSecondsAfterFinished=3, retryToken="a"), ""),
    "stop": (lambda s: s.update(shutdown="Stop"), ""),
    "prompt": (lambda s: s.update(prompt="x"), f"prompt {_FIXED}"),
    "field removed": (lambda s: s.pop("concurrency"), f"concurrency {_FIXED}"),
    "field added": (lambda s: s.update(startDeadlineSeconds=5), f"startDeadlineSeconds {_FIXED}"),
    "runID": (lambda s: s.update(runID="0b0e6a52-6f0f-4a8e-9f53-0b7c5a3f5e11"), f"runID {_FIXED}"),
    "key of free-form data renamed": (
        lambda s: s["agent"].update(outputSchema={"type": "object", "propertiez": {}}),
        f"agent {_FIXED}",
    ),
    "value deep in free-form data": (
        lambda s: s["agent"]["outputSchema"]["properties"]["answer"].update(type="number"),
        f"agent {_FIXED}",
    ),
    "arguments in a script": (
        lambda s: s["agent"]["model"]["script"]["turns"][0]["toolCalls"][0].update(arguments="a b"),
        f"agent {_FIXED}",
    ),
    "part of the pod's template renamed": (
        lambda s: s["podTemplate"].update(spec={"nodeSelektor": {"disk": "fast"}}),
        f"podTemplate {_FIXED}",
    ),
    "tools": (
        lambda s: s["agent"]["tools"].append({"name": "b", "python": {"entrypoint": "a:b"}}),
        f"agent {_FIXED}",
    ),
    "a program instead": (
        lambda s: (s.pop("agent"), s.update(program={"entrypoint": "a:b"})),
        f"program {_FIXED}",
    ),
}
