"""From pydantic's findings to problems in the manifest's own words.

Used by `manifest` and `definition`. Invariant: whatever a validator says, the
reader sees where it is, what is wrong and what would be right; never pydantic's
terms, and never a long value.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from agentrun.spec.base import PATTERN_RULES
from agentrun.spec.errors import ManifestError, Path, Problem, RuleError, format_path, show

ModelT = TypeVar("ModelT", bound=BaseModel)

_KNOWN_LISTED_MAX = 12


def validate(model: type[ModelT], value: object, *, source: str, root: Path = ()) -> ModelT:
    """The value as that model, fields named as in a manifest. Raises ManifestError."""
    try:
        return model.model_validate(value, by_alias=True, by_name=False)
    except ValidationError as error:
        problems = [
            Problem(format_path((*root, *path)), message)
            for detail in error.errors(include_url=False)
            for path, message in _explain(model, detail)
        ]
        # `from None`: the cause holds whole values, which may be secret or huge.
        raise ManifestError(problems, source=source) from None


def _explain(model: type[BaseModel], detail: ErrorDetails) -> Iterator[tuple[Path, str]]:
    path = tuple(step for step in detail["loc"] if step != "[key]")
    context: Mapping[str, Any] = detail.get("ctx", {})
    raised = context.get("error")
    if isinstance(raised, RuleError):
        for below, message in raised.found:
            yield (*path, *below), message
    elif detail["type"] == "too_short" and len(detail["input"]) >= context["min_length"]:
        # pydantic counts good entries only; the bad ones have problems of their own.
        return
    elif detail["type"] == "value_error":
        yield path, str(raised)
    elif detail["type"] == "extra_forbidden":
        yield path, _unknown_field(model, path)
    else:
        words = _WORDS.get(detail["type"])
        yield path, words(detail["input"], context) if words else f"is not valid: {detail['msg']}"


def _unknown_field(model: type[BaseModel], path: Path) -> str:
    known = _fields_at(model, path[:-1])
    near = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.6)
    if not near:
        near = [name for name in known if name.lower() == str(path[-1]).replace("_", "").lower()]
    if near:
        return f"unknown field; did you mean '{near[0]}'?"
    if 0 < len(known) <= _KNOWN_LISTED_MAX:
        return f"unknown field; known are: {', '.join(known)}"
    return "unknown field"


def _fields_at(model: type[BaseModel], path: Path) -> list[str]:
    """The names that a manifest may use at a path; none where it is free-form."""
    current: type[BaseModel] | None = model
    for step in path:
        if current is None:
            return []
        if isinstance(step, str):
            field = next((info for info in current.model_fields.values() if info.alias == step), None)
            current = _model_in(field.annotation) if field else None
    return [info.alias or name for name, info in current.model_fields.items()] if current else []


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)


def _not_text(value: Any, _: Mapping[str, Any]) -> str:
    if isinstance(value, bool):
        yes, no = "true (YAML reads true, yes and on so)", "false (YAML reads false, no and off so)"
        return f"must be text, not {yes if value else no}; put it in quotes"
    if isinstance(value, int | float):
        return f"must be text, not the number {show(value)}; put it in quotes"
    return f"must be text, not {show(value)}"


def _not_number(kind: str) -> Callable[[Any, Mapping[str, Any]], str]:
    def words(value: Any, _: Mapping[str, Any]) -> str:
        if isinstance(value, str) and re.fullmatch(r"\s*[-+]?[0-9.]+\s*", value):
            return f"must be {kind}, not the text {show(value)}; remove the quotes"
        return f"must be {kind}, not {show(value)}"

    return words


def _must_be(what: str) -> Callable[[Any, Mapping[str, Any]], str]:
    return lambda value, _: f"must be {what}, not {show(value)}"


def _bound(words: str, key: str) -> Callable[[Any, Mapping[str, Any]], str]:
    return lambda value, context: f"must be {words} {context[key]:.15g}, not {show(value)}"


def _length(words: str, unit: str, key: str) -> Callable[[Any, Mapping[str, Any]], str]:
    def say(value: Any, context: Mapping[str, Any]) -> str:
        if not len(value):
            return "must not be empty"
        return f"must have {words} {context[key]} {unit}, and has {len(value)}"

    return say


def _one_of(value: Any, context: Mapping[str, Any]) -> str:
    return f"must be {context['expected']}, not {show(value)}"


def _pattern(value: Any, context: Mapping[str, Any]) -> str:
    rule = PATTERN_RULES.get(context["pattern"], "has a form that is not allowed")
    return f"{rule}; not {show(value)}"


_WORDS: Mapping[str, Callable[[Any, Mapping[str, Any]], str]] = {
    "missing": lambda value, context: "is required",
    "string_type": _not_text,
    "int_type": _not_number("a whole number"),
    "int_from_float": _not_number("a whole number"),
    "float_type": _not_number("a number"),
    "finite_number": _must_be("a finite number"),
    "bool_type": _must_be("true or false"),
    "model_type": _must_be("a mapping of fields"),
    "model_attributes_type": _must_be("a mapping of fields"),
    "dict_type": _must_be("a mapping"),
    "tuple_type": _must_be("a list"),
    "greater_than_equal": _bound("at least", "ge"),
    "greater_than": _bound("more than", "gt"),
    "less_than_equal": _bound("at most", "le"),
    "less_than": _bound("less than", "lt"),
    "string_too_short": _length("at least", "characters", "min_length"),
    "string_too_long": _length("at most", "characters", "max_length"),
    "too_short": _length("at least", "entries", "min_length"),
    "too_long": _length("at most", "entries", "max_length"),
    "string_pattern_mismatch": _pattern,
    "enum": _one_of,
    "literal_error": _one_of,
}
"""What to say for each kind of finding, from the value and pydantic's context."""
