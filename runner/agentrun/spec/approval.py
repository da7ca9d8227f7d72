"""Which calls of a tool wait for a person: always, or by their arguments.

Used by `tools`; the agent loop decides with it before each call. Invariants: a
condition has exactly the values that its operator compares with; a pattern is one that
is matched in linear time, whatever the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator
from pydantic_core import SchemaError, SchemaValidator, core_schema

from agentrun.spec.base import ARGUMENT, ManifestModel, Str
from agentrun.spec.errors import Path, RuleError

CONDITIONS_MAX = 8
VALUES_MAX = 16
VALUE_CHARACTERS_MAX = 256
NUMBER = "^-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?$"
EXPONENT_MAX = 400


class Policy(StrEnum):
    """When a call waits."""

    ALWAYS = "Always"
    WHEN = "When"


class Operator(StrEnum):
    """How an argument is compared with the values."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"
    MATCHES = "Matches"


_WITHOUT_VALUES = frozenset({Operator.EXISTS, Operator.DOES_NOT_EXIST})
_OF_NUMBERS = frozenset({Operator.GT, Operator.LT})


def number(text: str) -> Decimal | None:
    """A JSON number exactly; None for what is none, or is beyond all measure."""
    if not re.fullmatch(NUMBER, text):
        return None
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return value if abs(value.adjusted()) <= EXPONENT_MAX else None


def matcher(pattern: str) -> SchemaValidator:
    """Takes the texts in which the pattern is found; ValueError for what is no pattern.

    Linear in the text, as in Go's and CEL's regular expressions: what a model writes cannot
    make it run for long."""
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        raise ValueError(
            "must be a regular expression (as of RE2: without look-around and back references)"
        ) from None


class ApprovalCondition(ManifestModel):
    """One condition on one argument of a call."""

    argument: Annotated[Str, Field(min_length=1, max_length=VALUE_CHARACTERS_MAX, pattern=ARGUMENT)] = Field(
        description="The argument, with dots for what is inside it: amount, order.items.0.price."
    )
    operator: Operator = Field(
        description="In, NotIn, Exists, DoesNotExist, Gt, Lt, or Matches (a regular expression, found "
        "anywhere in the text)."
    )
    values: Annotated[
        tuple[Annotated[Str, Field(max_length=VALUE_CHARACTERS_MAX)], ...], Field(max_length=VALUES_MAX)
    ] = Field(
        default=(),
        description="What the argument is compared with, as strings: one number for Gt and Lt, none for "
        "Exists and DoesNotExist, else at least one.",
    )

    @model_validator(mode="after")
    def _values_fit(self) -> ApprovalCondition:
        if problems := list(self._problems()):
            raise RuleError(problems)
        return self

    def _problems(self) -> Iterator[tuple[Path, str]]:
        name = self.operator.value
        if self.operator in _WITHOUT_VALUES:
            if self.values:
                yield ("values",), f"has no meaning for {name}; remove it"
        elif self.operator in _OF_NUMBERS:
            if len(self.values) != 1 or number(self.values[0]) is None:
                yield ("values",), f'must be one number as a string for {name}, such as ["100"]'
        elif not self.values:
            yield ("values",), f"must have at least one value for {name}"
        elif self.operator is Operator.MATCHES:
            for index, pattern in enumerate(self.values):
                try:
                    matcher(pattern)
                except ValueError as error:
                    yield ("values", index), str(error)


class ApprovalRule(ManifestModel):
    """Whether calls of the tool wait until a person has approved them."""

    policy: Policy = Field(
        description="Always: each call waits for a person. When: a call waits for which at least one of the "
        "conditions in when holds, or cannot be told."
    )
    when: Annotated[tuple[ApprovalCondition, ...], Field(max_length=CONDITIONS_MAX)] = Field(
        default=(), description="The conditions of policy When: one that holds is enough. At most 8."
    )

    @model_validator(mode="after")
    def _when_fits(self) -> ApprovalRule:
        if self.policy is Policy.WHEN and not self.when:
            raise RuleError([(("when",), "is required for policy When: at least one condition")])
        if self.policy is Policy.ALWAYS and self.when:
            raise RuleError(
                [(("when",), "has no meaning for policy Always; remove it, or set policy to When")]
            )
        return self
