"""Whether a call needs a person's approval, by its tool's rule. Pure.

Who calls: the agent loop, before each call of a tool that has a rule. What holds: what
cannot be told (arguments that do not parse, one that is missing, a text where a number
is compared) needs approval.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic_core import SchemaValidator, ValidationError

from agentrun.spec.approval import ApprovalCondition, ApprovalRule, Operator, Policy, matcher, number
from agentrun.tools.arguments import Number, parse_arguments
from agentrun.tools.errors import ArgumentsError

_MISSING = object()


def needs_approval(rule: ApprovalRule | None, arguments: str) -> bool:
    """The call with these arguments (JSON text, as the model wrote it) waits for a person."""
    if rule is None:
        return False
    if rule.policy is Policy.ALWAYS:
        return True
    try:
        given = parse_arguments(arguments, literal_numbers=True)
    except ArgumentsError:
        return True
    return any(_holds(condition, given) is not False for condition in rule.when)


def _holds(condition: ApprovalCondition, given: Mapping[str, Any]) -> bool | None:
    """None: it cannot be told."""
    value = _find(given, condition.argument)
    operator = condition.operator
    if operator is Operator.EXISTS:
        return value is not _MISSING
    if operator is Operator.DOES_NOT_EXIST:
        return value is _MISSING
    text = _text(value)
    if text is None:
        return None
    if operator in (Operator.GT, Operator.LT):
        found, bound = number(text), number(condition.values[0])
        if found is None or bound is None:
            return None
        return found > bound if operator is Operator.GT else found < bound
    if operator is Operator.MATCHES:
        return any(_matches(pattern, text) for pattern in condition.values)
    among = any(_equal(text, other) for other in condition.values)
    return among if operator is Operator.IN else not among


def _find(value: Any, path: str) -> Any:
    for step in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(step, _MISSING)
        elif isinstance(value, list) and step.isascii() and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return _MISSING
    return value


def _text(value: Any) -> str | None:
    """A scalar as values are written; None for what is none."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    return str(value) if isinstance(value, str | Number) else None


def _equal(text: str, other: str) -> bool:
    """As texts; numbers as numbers, so that 100, 100.0 and 1e2 are one."""
    if text == other:
        return True
    one, two = number(text), number(other)
    return one is not None and one == two


def _matches(pattern: str, text: str) -> bool:
    try:
        _matcher(pattern).validate_python(text)
    except ValidationError:
        return False
    return True


@lru_cache(maxsize=256)
def _matcher(pattern: str) -> SchemaValidator:
    return matcher(pattern)
