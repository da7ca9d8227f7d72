"""Agents, tools and models that are wrong, and the exact line that their author reads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentrun.spec import AgentRun, ManifestError

Load = Callable[..., AgentRun]

PROMPT = "prompt: Say hello."
MODEL = "name: scripted:good"
TOOL = """- name: add
        python: {entrypoint: "agentrun.tools.demo:add"}"""
TURN = "- text: Hello."
PROVIDERS = "Known are: scripted, openai, openai-responses, anthropic, google"
PATTERN = "must be a regular expression (as of RE2: without look-around and back references)"
SCHEMA = "parameters: {type: object}"


def spec(line: str) -> str:
    """A further line of the spec."""
    return f"{PROMPT}\n  {line}"


CASES = [
    # Agents and programs.
    (
        PROMPT,
        spec("program: {entrypoint: 'a.b:c'}"),
        ["spec: must have exactly one of agent and program; it has both"],
    ),
    (
        TOOL,
        "- {agent: bob}",
        ["spec.agent.tools[0].agent: no sub-agent is named 'bob'; spec.agents has none"],
    ),
    (
        PROMPT,
        spec("agents: [{name: ann, model: {name: 'openai:x'}}, {name: ann, model: {name: 'openai:x'}}]"),
        ["spec.agents[1].name: 'ann' is already the name of agents[0]"],
    ),
    (
        PROMPT,
        spec("agents: [{name: ann, model: {name: 'openai:x'}, tools: [{agent: eve}]}]"),
        ["spec.agents[0].tools[0].agent: no sub-agent is named 'eve'; known are: ann"],
    ),
    # Tools.
    (
        TOOL,
        "- name: add",
        ["spec.agent.tools[0]: must have exactly one of python, http, agent, mcp, openapi; it has none"],
    ),
    (
        TOOL,
        f"{TOOL}\n        http: {{url: 'http://a'}}",
        [
            "spec.agent.tools[0]: must have exactly one of python, http, agent, mcp, openapi; "
            "it has python and http"
        ],
    ),
    (
        TOOL,
        "- {name: shop, openapi: {}}",
        ["spec.agent.tools[0].openapi: must have exactly one of url, documentFrom and document"],
    ),
    (
        TOOL,
        "- {name: shop, openapi: {url: 'http://a', document: {openapi: 3.1.0}}}",
        ["spec.agent.tools[0].openapi: must have exactly one of url, documentFrom and document"],
    ),
    (
        TOOL,
        "- {name: shop, openapi: {document: {}, baseURL: 'ftp://a'}}",
        [
            "spec.agent.tools[0].openapi.baseURL: must be a URL that begins with http:// or https:// and "
            "names a host"
        ],
    ),
    (
        TOOL,
        "- {name: read_result, python: {entrypoint: 'a.b:c'}}",
        ["spec.agent.tools[0].name: 'read_result' is the name of a built-in tool; take another"],
    ),
    (
        TOOL,
        f"{TOOL}\n    context: {{compaction: {{}}}}",
        ["spec.agent.model.contextWindow: is needed for context.compaction, and is not set"],
    ),
    (
        TOOL,
        f"{TOOL}\n    context: {{compaction: {{atPercent: 50, keepPercent: 41}}}}",
        [
            "spec.agent.context.compaction: keepPercent (41) must be at most atPercent less 10 (40)",
        ],
    ),
    (
        TOOL,
        "- {name: files, mcp: {}}",
        ["spec.agent.tools[0].mcp: must have exactly one of url and command"],
    ),
    (
        TOOL,
        "- {name: files, mcp: {url: 'http://a', command: [x]}}",
        ["spec.agent.tools[0].mcp: must have exactly one of url and command"],
    ),
    (
        TOOL,
        "- {name: files, mcp: {url: 'http://a', env: [{name: A, value: b}]}}",
        [
            "spec.agent.tools[0].mcp.env: has a meaning only with command; a server at a url takes headers",
        ],
    ),
    (
        TOOL,
        "- {name: files, mcp: {command: [x], headers: [{name: A, value: b}]}}",
        ["spec.agent.tools[0].mcp.headers: has a meaning only with url; a program takes env"],
    ),
    (
        TOOL,
        "- {name: files, mcp: {command: []}}",
        ["spec.agent.tools[0].mcp.command: must not be empty"],
    ),
    (
        TOOL,
        "- {name: files, mcp: {command: [x], env: [{name: A-B, value: b}]}}",
        [
            "spec.agent.tools[0].mcp.env[0].name: must be letters, digits and '_', and begin with a letter "
            "or '_'; not 'A-B'"
        ],
    ),
    (
        TOOL,
        "- {name: files, mcp: {command: [x], env: [{name: A}]}}",
        ["spec.agent.tools[0].mcp.env[0]: must have exactly one of value and valueFrom"],
    ),
    (
        TOOL,
        "- {name: files, mcp: {command: [x], env: [{name: A, value: b}, {name: A, value: c}]}}",
        ["spec.agent.tools[0].mcp.env[1].name: 'A' stands there twice"],
    ),
    *[
        (TOOL, tool, [f"spec.agent.tools[0].{place}.headers: 'x-a' stands there twice"])
        for headers in ["headers: [{name: X-A, value: b}, {name: x-a, value: c}]"]
        for place, tool in [
            ("mcp", f"- {{name: files, mcp: {{url: 'http://a', {headers}}}}}"),
            ("openapi", f"- {{name: files, openapi: {{url: 'http://a', {headers}}}}}"),
            ("http", f"- {{name: x, description: x, {SCHEMA}, http: {{url: 'http://a', {headers}}}}}"),
        ]
    ],
    (
        TOOL,
        "- mcp: {url: 'http://a'}",
        ["spec.agent.tools[0].name: is required for a server: a name for it"],
    ),
    (
        TOOL,
        f"- {{name: files, description: x, mcp: {{url: 'http://a'}}, {SCHEMA}}}",
        [
            "spec.agent.tools[0].description: has no meaning for a server, which describes its tools "
            "itself; remove it",
            "spec.agent.tools[0].parameters: has no meaning for a server, which describes its tools "
            "itself; remove it",
        ],
    ),
    (
        TOOL,
        "- {name: files, mcp: {url: 'http://u:p@a'}}",
        ["spec.agent.tools[0].mcp.url: must not hold credentials; name a Secret instead"],
    ),
    (
        TOOL,
        "- python: {entrypoint: 'a:b'}",
        ["spec.agent.tools[0].name: is required for a tool of kind python"],
    ),
    (
        TOOL,
        "- name: x\n        http: {url: 'http://a'}",
        [
            "spec.agent.tools[0].description: is required for a tool of kind http",
            "spec.agent.tools[0].parameters: is required for a tool of kind http",
        ],
    ),
    (
        TOOL,
        f"- name: x\n        description: x\n        {SCHEMA}\n        "
        "http: {url: 'http://a', method: GET}",
        ["spec.agent.tools[0].http: a GET request has no body: set arguments to Query, or another method"],
    ),
    (
        TOOL,
        f"{TOOL}\n        requireApproval: {{policy: When}}",
        ["spec.agent.tools[0].requireApproval.when: is required for policy When: at least one condition"],
    ),
    (
        TOOL,
        f"{TOOL}\n        requireApproval: {{policy: Always, when: [{{argument: a, operator: Exists}}]}}",
        [
            "spec.agent.tools[0].requireApproval.when: has no meaning for policy Always; remove it, or set "
            "policy to When"
        ],
    ),
    *[
        (
            TOOL,
            f"{TOOL}\n        requireApproval: {{policy: When, when: [{condition}]}}",
            [f"spec.agent.tools[0].requireApproval.when[0].{message}"],
        )
        for condition, message in (
            (
                "{argument: a, operator: Gt, values: [many]}",
                'values: must be one number as a string for Gt, such as ["100"]',
            ),
            (
                "{argument: a, operator: Lt, values: ['1', '2']}",
                'values: must be one number as a string for Lt, such as ["100"]',
            ),
            ("{argument: a, operator: In}", "values: must have at least one value for In"),
            (
                "{argument: a, operator: Exists, values: [x]}",
                "values: has no meaning for Exists; remove it",
            ),
            (
                "{argument: a, operator: Matches, values: [x, '(']}",
                "values[1]: " + PATTERN,
            ),
            (
                "{argument: a, operator: Matches, values: ['(a)\\1']}",
                "values[0]: " + PATTERN,
            ),
            (
                "{argument: a..b, operator: Exists}",
                "argument: must be an argument's name, with dots for what is inside it, such as "
                "order.amount; not 'a..b'",
            ),
        )
    ],
    (
        TOOL,
        "- {agent: bob, effect: read_only}",
        ["spec.agent.tools[0].effect: has no meaning for a sub-agent; remove it"],
    ),
    (
        TOOL,
        f"{TOOL}\n      - {{name: add, python: {{entrypoint: 'a:b'}}}}",
        ["spec.agent.tools[1].name: 'add' is already the name of tools[0]"],
    ),
    (
        TOOL,
        "- {name: x, python: {entrypoint: tools.py}}",
        [
            "spec.agent.tools[0].python.entrypoint: must be a Python function as package.module:function; "
            "not 'tools.py'"
        ],
    ),
    (
        TOOL,
        f"{TOOL}\n        parameters: {{type: array}}",
        ["spec.agent.tools[0].parameters: must be a JSON schema whose type is object"],
    ),
    (
        TOOL,
        "- {name: x, http: {url: 'http://a', headers: [{name: A}]}}",
        ["spec.agent.tools[0].http.headers[0]: must have exactly one of value and valueFrom"],
    ),
    (
        TOOL,
        "- {name: x, http: {url: 'http://a', headers: [{name: A, value: \"a\\r\\nB: c\"}]}}",
        ["spec.agent.tools[0].http.headers[0].value: must be one line without control characters"],
    ),
    # Models.
    (
        MODEL,
        "name: opanai:gpt-5",
        [f"spec.agent.model.name: unknown provider 'opanai'; did you mean 'openai'? {PROVIDERS}"],
    ),
    (
        MODEL,
        "name: zzz:x",
        [f"spec.agent.model.name: unknown provider 'zzz'; {PROVIDERS.replace('Known', 'known')}"],
    ),
    (
        MODEL,
        "name: gpt-5",
        ["spec.agent.model.name: must be provider:model, such as openai:gpt-5, not 'gpt-5'"],
    ),
    (
        MODEL,
        "name: openai:gpt-5",
        ["spec.agent.model.script: is for scripted models only, and this one is 'openai:gpt-5'"],
    ),
    (
        MODEL,
        f"{MODEL}\n      baseURL: http://a",
        ["spec.agent.model: a scripted model calls nothing: it takes no baseURL and no apiKeyFrom"],
    ),
    (
        MODEL,
        f"{MODEL}\n      baseURL: ftp://a",
        ["spec.agent.model.baseURL: must be a URL that begins with http:// or https:// and names a host"],
    ),
    (
        MODEL,
        f"{MODEL}\n      baseURL: http://me:pw@a/v1",
        ["spec.agent.model.baseURL: must not hold credentials; name a Secret instead"],
    ),
    (
        MODEL,
        f"{MODEL}\n      baseURL: 'http://a:99999'",
        ["spec.agent.model.baseURL: must be a URL that begins with http:// or https:// and names a host"],
    ),
    (
        MODEL,
        f"{MODEL}\n      fallbacks: [{{name: 'openai:x', fallbacks: []}}]",
        [
            "spec.agent.model.fallbacks[0].fallbacks: unknown field; known are: name, baseURL, apiKeyFrom, "
            "settings, contextWindow, script, scriptFile"
        ],
    ),
    (
        MODEL,
        f"{MODEL}\n      settings: {{toolChoice: sum}}",
        [
            "spec.agent.model.settings.toolChoice: must be auto, required, none or the name of a tool; "
            "no tool is named 'sum'"
        ],
    ),
    (
        MODEL,
        f"{MODEL}\n      apiKeyFrom: {{secretKeyRef: {{name: a}}}}",
        ["spec.agent.model.apiKeyFrom.secretKeyRef.key: is required"],
    ),
    (
        TURN,
        "- {text: a, error: {status: 500}}",
        [
            "spec.agent.model.script.turns[0]: a turn with an error has no text, thinking or toolCalls; "
            "make them two turns"
        ],
    ),
    (
        TURN,
        "- toolCalls: [{name: add, arguments: [1]}]",
        [
            "spec.agent.model.script.turns[0].toolCalls[0].arguments: must be a mapping of arguments, "
            "or the raw text that the model wrote"
        ],
    ),
    (
        TURN,
        "[]",
        ["spec.agent.model.script.turns: must not be empty"],
    ),
    (
        "      script:\n        turns:\n          - text: Hello.\n",
        "",
        ["spec.agent.model: a scripted model needs script or scriptFile"],
    ),
    (
        "      script:\n        turns:\n          - text: Hello.\n",
        "      scriptFile: a.yaml\n",
        ["spec.agent.model.scriptFile: is read only from a manifest on disk; write the script inline here"],
    ),
]


@pytest.mark.parametrize(("old", "new", "lines"), CASES, ids=[case[2][0][:60] for case in CASES])
def test_each_mistake_is_told_about_agents_in_one_line_that_says_what_would_be_right(
    load: Load, old: str, new: str, lines: list[str]
) -> None:
    with pytest.raises(ManifestError) as caught:
        load(old, new)
    assert str(caught.value).split("\n") == [f"x.yaml: {line}" for line in lines]


def test_free_form_data_is_bounded_in_depth_and_size(load: Load) -> None:
    deep = "{a: " * 40 + "1" + "}" * 40
    with pytest.raises(ManifestError, match=r"settings\.extra: must be nested at most 32 levels deep"):
        load(MODEL, f"{MODEL}\n      settings: {{extra: {deep}}}")
    with pytest.raises(
        ManifestError, match=r"settings\.extra: must be at most 65536 bytes as JSON, and has 70009"
    ):
        load(MODEL, f"{MODEL}\n      settings: {{extra: {{a: {'x' * 70000}}}}}")


def test_a_script_has_at_most_2000_turns_and_512_kib(load: Load) -> None:
    with pytest.raises(ManifestError, match=r"script\.turns: must have at most 2000 entries, and has 2001"):
        load(TURN, "\n          ".join(["- {}"] * 2001))
    with pytest.raises(ManifestError, match=r"script: must be at most 524288 bytes as JSON, and has 600"):
        load(TURN, "\n          ".join([f"- text: {'x' * 60000}"] * 10))
