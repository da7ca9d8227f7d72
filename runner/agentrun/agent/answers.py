"""Answers that must fit a JSON schema: what the model is told of it, and what does not fit.

Who calls: `program` when an agent is built, the loop when a turn could be the last.
What holds: nothing is fetched to check an answer; whatever the model says gives problems
in words, never an exception. The library is imported only for agents with a schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ASKS_MAX = 2
"""So often a model is asked again for an answer that fits."""

PROBLEMS_TOLD_MAX = 10
PROBLEM_CHARACTERS_MAX = 300

_DATA = ("const", "enum", "default", "examples")
"""Keywords whose value is no schema, whatever it looks like."""


class BadSchema(ValueError):
    """It is no schema that answers can be checked against. One line."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """An answer. `text` is the JSON alone, as the model wrote it; `problems` is empty where it fits."""

    text: str
    problems: list[str] = field(default_factory=list)


class AnswerSchema:
    """Raises BadSchema for a schema that is none, or that needs another document."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import Draft202012Validator, validator_for
        from referencing import Registry

        self.schema = dict(schema)
        kind = validator_for(self.schema, default=Draft202012Validator)
        try:
            kind.check_schema(self.schema)
        except SchemaError as error:
            # Of what is none of several, the one that lists what would be right.
            listed = [part.message for part in error.context or () if part.validator == "enum"]
            raise BadSchema(f"{_at(error.json_path)}{_clip([*listed, error.message][0])}") from None
        # An empty registry: the library's own would fetch what a $ref names.
        self._validator = kind(self.schema, registry=Registry())
        self._check_references()

    def _check_references(self) -> None:
        from referencing import Registry
        from referencing.exceptions import Unresolvable
        from referencing.jsonschema import DRAFT202012

        pairs = _pairs(self.schema)
        names = {value for key, value in pairs if key == "$id"}
        resolver = Registry().resolver_with_root(DRAFT202012.create_resource(self.schema))
        for ref in [value for key, value in pairs if key == "$ref" and isinstance(value, str)]:
            document = ref.partition("#")[0]
            if document and document not in names:
                raise BadSchema(f"$ref {_clip(ref)!r} names another document, which is not fetched")
            if not names:  # else what a "#" is relative to is another question
                try:
                    resolver.lookup(ref)
                except Unresolvable:
                    raise BadSchema(f"$ref {_clip(ref)!r} names nothing in the schema") from None

    @property
    def instructions(self) -> str:
        """For the model; the same in each turn."""
        text = json.dumps(self.schema, ensure_ascii=False, separators=(",", ":"))
        return (
            "Your final answer must be one JSON value that fits this JSON schema, with no other text "
            f"around it:\n{text}"
        )

    def judge(self, said: str) -> Judged:
        """What the model said, as an answer."""
        text = _unfenced(said)
        try:
            value = json.loads(text, parse_constant=_refuse)
        except RecursionError:
            return Judged(text=text, problems=["the answer is nested too deeply"])
        except ValueError as error:
            return Judged(text=text, problems=[_clip(f"the answer is not JSON: {error}")])
        try:
            found = sorted(self._validator.iter_errors(value), key=lambda error: error.json_path)
            problems = [_at(error.json_path) + _clip(error.message) for error in found]
        except RecursionError:
            problems = ["the answer is nested too deeply"]
        except Exception as error:  # a schema that passed its check, and cannot be applied all the same
            problems = [_clip(f"the schema cannot be applied: {error}")]
        return Judged(text=text, problems=problems)


def told(problems: list[str]) -> str:
    """What the model is told of an answer that does not fit."""
    shown = "\n".join(f"- {problem}" for problem in problems[:PROBLEMS_TOLD_MAX])
    more = len(problems) - PROBLEMS_TOLD_MAX
    rest = f"\n- and {more} more" if more > 0 else ""
    return (
        f"Your answer does not fit the JSON schema:\n{shown}{rest}\nAnswer again, with the JSON value alone."
    )


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _unfenced(said: str) -> str:
    """Without the fence that models like to put around JSON."""
    text = said.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        first, _, rest = text.partition("\n")
        if first[3:].strip().lower() in ("", "json"):
            return rest[:-3].strip()
    return text


def _at(path: str) -> str:
    """Where in the answer; nothing for the whole of it."""
    return "" if path == "$" else f"{_clip(path)}: "


def _clip(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= PROBLEM_CHARACTERS_MAX else line[: PROBLEM_CHARACTERS_MAX - 1] + "…"


def _pairs(schema: Any) -> list[tuple[str, Any]]:
    """All keywords in a schema with their values, at any depth."""
    found: list[tuple[str, Any]] = []
    waiting = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            found.extend(value.items())
            waiting.extend(inner for key, inner in value.items() if key not in _DATA)
        elif isinstance(value, list):
            waiting.extend(value)
    return found
