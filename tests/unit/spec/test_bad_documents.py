"""Texts that are no manifest, and the exact line that their author reads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentrun.spec import AgentRun, ManifestError, load_manifest

Load = Callable[..., AgentRun]

PROMPT = "prompt: Say hello."


def spec(line: str) -> str:
    """A further line of the spec."""
    return f"{PROMPT}\n  {line}"


CASES = [
    ("kind: AgentRun", "kind: AgentRuns", ["kind: must be 'AgentRun', not 'AgentRuns'"]),
    ("kind: AgentRun\n", "", ["kind: is required; it must be 'AgentRun'"]),
    ("v1alpha1", "v1", ["apiVersion: must be 'agentrun.dev/v1alpha1', not 'agentrun.dev/v1'"]),
    (PROMPT, spec(PROMPT), ["line 7, column 3: the key 'prompt' stands twice in one mapping"]),
    (
        PROMPT,
        "prompt:\n\t- a",
        ["line 7, column 1: a tab, which YAML does not take here; indent with spaces"],
    ),
    (
        PROMPT,
        "prompt: a: b",
        ["line 6, column 12: not valid YAML: a second ':' in one line; put text that holds ': ' in quotes"],
    ),
    (
        PROMPT,
        "prompt: @x",
        ["line 6, column 11: not valid YAML: no value can begin with '@'; put it in quotes"],
    ),
    (
        PROMPT,
        "prompt: *x",
        ["line 6, column 11: no anchor &x ends before this; text that begins with * needs quotes"],
    ),
    (
        PROMPT,
        "prompt: &x [*x]",
        ["line 6, column 15: no anchor &x ends before this; text that begins with * needs quotes"],
    ),
    (PROMPT, "prompt: a\0b", ["line 6: character 12 is U+0000 (NUL), which text may not hold; remove it"]),
    (
        PROMPT,
        "prompt: !!python/name:os.system x",
        ["line 6, column 11: the tag 'tag:yaml.org,2002:python/name:os.system' is not allowed"],
    ),
    (
        PROMPT,
        spec("<<: {suspend: true}"),
        ["line 7, column 3: merge keys (<<) are not allowed; write the fields out"],
    ),
    (PROMPT, spec("? [a]\n  : b"), ["line 7, column 7: a key must be text, not a mapping or list"]),
    (
        PROMPT,
        spec("concurrency: " + "[" * 500),
        ["line 7, column 78: must be nested at most 64 levels deep"],
    ),
    (PROMPT, f"prompt: {'x' * 5_000_000}", ["must be at most 4194304 bytes, and has 5000274"]),
]


@pytest.mark.parametrize(("old", "new", "lines"), CASES, ids=[case[2][0][:60] for case in CASES])
def test_each_mistake_is_told_about_a_document_in_one_line_that_says_what_would_be_right(
    load: Load, old: str, new: str, lines: list[str]
) -> None:
    with pytest.raises(ManifestError) as caught:
        load(old, new)
    assert str(caught.value).split("\n") == [f"x.yaml: {line}" for line in lines]


WHOLE_TEXTS = [
    ("", "is empty: a manifest has apiVersion, kind, metadata and spec"),
    ("# nothing\n---\n", "is empty: a manifest has apiVersion, kind, metadata and spec"),
    ("just text", "must be a mapping with apiVersion, kind, metadata and spec, not 'just text'"),
    ("- a\n- b", "must be a mapping with apiVersion, kind, metadata and spec, not a list"),
    ("a: 1\n---\nb: 2\n", "holds 2 documents, and a manifest is one; put each in a file of its own"),
    ('{"a": 1, "a": 2}', "the key 'a' stands twice in one mapping"),
    ('{"a": ' * 5000, "must be nested at most 64 levels deep"),
    (b"a: \xff", "must be UTF-8, and byte 4 is not"),
]


@pytest.mark.parametrize(("text", "line"), WHOLE_TEXTS, ids=[line for _, line in WHOLE_TEXTS])
def test_a_text_that_is_no_manifest_is_told_so(text: str | bytes, line: str) -> None:
    with pytest.raises(ManifestError) as caught:
        load_manifest(text, source="x.yaml", base_dir=None)
    assert str(caught.value).endswith(line)
    assert str(caught.value).count("\n") == 0


def test_aliases_that_multiply_are_stopped(good_text: str) -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
    )
    with pytest.raises(ManifestError, match="too large once its aliases are written out"):
        load_manifest(bomb + good_text, source="x.yaml", base_dir=None)


def test_the_deepest_nesting_is_refused_and_harms_nothing(load: Load) -> None:
    for text in ("[" * 100_000, "- " * 100_000, "{a: " * 100_000):
        with pytest.raises(ManifestError, match="must be nested at most 64 levels deep"):
            load(PROMPT, f"prompt:\n    {text}")
