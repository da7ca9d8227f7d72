"""Each way to get a manifest wrong, and the exact line that its author reads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentrun.spec import AgentRun, ManifestError

Load = Callable[..., AgentRun]

PROMPT = "prompt: Say hello."
MODEL = "name: scripted:good"
TURN = "- text: Hello."
SUBDOMAIN = "must be lower-case letters, digits, '-' and '.', and begin and end with a letter or digit"


def spec(line: str) -> str:
    """A further line of the spec."""
    return f"{PROMPT}\n  {line}"


CASES = [
    # Fields that do not exist, or are missing.
    (PROMPT, "promt: Hello", ["spec.promt: unknown field; did you mean 'prompt'?"]),
    (
        "    model:",
        "    instuctions: x\n    model:",
        ["spec.agent.instuctions: unknown field; did you mean 'instructions'?"],
    ),
    (
        PROMPT,
        spec("budget: {wall_seconds: 5}"),
        ["spec.budget.wall_seconds: unknown field; did you mean 'wallSeconds'?"],
    ),
    (PROMPT, spec("runId: x"), ["spec.runId: unknown field; did you mean 'runID'?"]),
    (
        TURN,
        "- {say: Hello}",
        [
            "spec.agent.model.script.turns[0].say: unknown field; known are: text, thinking, toolCalls, "
            "delaySeconds, usage, finishReason, error"
        ],
    ),
    ("  name: good\n", "  labels: {a: b}\n", ["metadata.name: is required (or generateName)"]),
    (MODEL, "settings: {}", ["spec.agent.model.name: is required"]),
    # Names.
    ("  name: good\n", "  name: Good_One\n", [f"metadata.name: {SUBDOMAIN}; not 'Good_One'"]),
    (
        "  name: good\n",
        f"  name: {'a' * 254}\n",
        ["metadata.name: must have at most 253 characters, and has 254"],
    ),
    (
        "  name: good\n",
        "  name: good\n  labels: {app: yes, tier: 1}\n",
        [
            "metadata.labels.app: must be text, not true (YAML reads true, yes and on so); put it in quotes",
            "metadata.labels.tier: must be text, not the number 1; put it in quotes",
        ],
    ),
    (
        "  name: good\n",
        "  name: good\n  annotations: {'a b/c': x}\n",
        [
            "metadata.annotations[a b/c]: the key must be at most 63 letters, digits, '-', '_' and '.', "
            "after an optional domain and '/'"
        ],
    ),
    (
        "name: add",
        "name: 2add",
        [
            "spec.agent.tools[0].name: must be at most 64 letters, digits, '_' and '-', and begin with "
            "a letter or '_'; not '2add'"
        ],
    ),
    # The prompt.
    (PROMPT, 'prompt: ""', ["spec.prompt: must not be empty"]),
    (PROMPT, 'prompt: " \\n "', ["spec.prompt: must not be blank: it is white space only"]),
    (PROMPT, "prompt:", ["spec: an agent needs exactly one of prompt and promptFrom; it has none"]),
    (PROMPT, "prompt: 12", ["spec.prompt: must be text, not the number 12; put it in quotes"]),
    (
        PROMPT,
        "prompt: yes",
        ["spec.prompt: must be text, not true (YAML reads true, yes and on so); put it in quotes"],
    ),
    (
        PROMPT,
        "prompt: off",
        ["spec.prompt: must be text, not false (YAML reads false, no and off so); put it in quotes"],
    ),
    (PROMPT, "prompt: [a]", ["spec.prompt: must be text, not a list"]),
    (PROMPT, f"prompt: {'ä' * 32769}", ["spec.prompt: must be at most 65536 bytes of UTF-8, and has 65538"]),
    (
        PROMPT,
        'prompt: "a\\0b"',
        ["spec.prompt: character 2 is U+0000 (NUL), which text may not hold; remove it"],
    ),
    (
        PROMPT,
        'prompt: "a\\eb"',
        ["spec.prompt: character 2 is U+001B (a control character), which text may not hold; remove it"],
    ),
    (
        PROMPT,
        spec("promptFrom: {configMapKeyRef: {name: a, key: b}}"),
        ["spec: must have at most one of prompt and promptFrom; it has both"],
    ),
    # Numbers.
    (PROMPT, spec("budget: {tokens: -5}"), ["spec.budget.tokens: must be at least 1, not -5"]),
    (PROMPT, spec("budget: {retries: -1}"), ["spec.budget.retries: must be at least 0, not -1"]),
    (PROMPT, spec("budget: {turns: true}"), ["spec.budget.turns: must be a whole number, not true"]),
    (PROMPT, spec("budget: {turns: 1.5}"), ["spec.budget.turns: must be a whole number, not 1.5"]),
    (
        PROMPT,
        spec('budget: {tokens: "5"}'),
        ["spec.budget.tokens: must be a whole number, not the text '5'; remove the quotes"],
    ),
    (
        PROMPT,
        spec("budget: {wallSeconds: 1:30}"),
        ["spec.budget.wallSeconds: must be a whole number, not '1:30'"],
    ),
    (
        PROMPT,
        spec(f"budget: {{tokens: {'9' * 5000}}}"),
        ["spec.budget.tokens: is a number out of range: at most 9223372036854775807 is possible"],
    ),
    (PROMPT, spec("concurrency: 1000"), ["spec.concurrency: must be at most 256, not 1000"]),
    (
        MODEL,
        f"{MODEL}\n      settings: {{temperature: .nan}}",
        ["spec.agent.model.settings.temperature: must be a finite number"],
    ),
    (
        MODEL,
        f"{MODEL}\n      settings: {{topP: 0}}",
        ["spec.agent.model.settings.topP: must be more than 0, not 0"],
    ),
    # Other types.
    (PROMPT, spec('suspend: "no"'), ["spec.suspend: must be true or false, not 'no'"]),
    (PROMPT, spec("budget: [1]"), ["spec.budget: must be a mapping of fields, not a list"]),
    (PROMPT, spec("agents: {a: 1}"), ["spec.agents: must be a list, not a mapping"]),
    (
        PROMPT,
        spec("budget: {onExceeded: pause}"),
        ["spec.budget.onExceeded: must be 'Pause' or 'Fail', not 'pause'"],
    ),
    (
        PROMPT,
        spec("runID: 12345"),
        ["spec.runID: must be a UUID such as 0b0e6a52-6f0f-4a8e-9f53-0b7c5a3f5e11"],
    ),
    (PROMPT, spec("on: yes"), ["spec: has the key true, which must be text; put it in quotes"]),
]


@pytest.mark.parametrize(("old", "new", "lines"), CASES, ids=[case[2][0][:60] for case in CASES])
def test_each_mistake_is_told_in_one_line_that_says_what_would_be_right(
    load: Load, old: str, new: str, lines: list[str]
) -> None:
    with pytest.raises(ManifestError) as caught:
        load(old, new)
    assert str(caught.value).split("\n") == [f"x.yaml: {line}" for line in lines]


def test_all_mistakes_are_told_at_once_and_in_order(load: Load) -> None:
    with pytest.raises(ManifestError) as caught:
        load(PROMPT, spec("budget: {tokens: 0, turns: 0}\n  suspend: 1"))
    assert [problem.path for problem in caught.value.problems] == [
        "spec.budget.tokens",
        "spec.budget.turns",
        "spec.suspend",
    ]


def test_very_many_mistakes_are_cut(load: Load) -> None:
    with pytest.raises(ManifestError) as caught:
        load(TURN, "\n          ".join(["- {sey: a}"] * 50))
    assert len(caught.value.problems) == 50
    assert str(caught.value).split("\n")[-1] == "x.yaml: and 30 more problems"


def test_a_refused_value_is_never_repeated_at_length(load: Load) -> None:
    with pytest.raises(ManifestError) as caught:
        load(MODEL, f"name: {'x' * 200}\n      baseURL: {'y' * 2000}")
    assert all(len(line) < 250 for line in str(caught.value).split("\n"))
