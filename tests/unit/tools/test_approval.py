"""Which calls wait for a person, by their arguments."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from agentrun.spec.approval import ApprovalRule
from agentrun.tools.approval import needs_approval


def rule(*conditions: tuple[str, str, list[str]]) -> ApprovalRule:
    when = [{"argument": a, "operator": o, "values": v} for a, o, v in conditions]
    return ApprovalRule.model_validate({"policy": "When", "when": when})


@pytest.mark.parametrize(
    ("operator", "values", "value", "needed"),
    [
        ("In", ["prod", "live"], "prod", True),
        ("In", ["prod", "live"], "test", False),
        ("In", ["100"], 100.0, True),
        ("In", ["1e2"], "100", True),
        ("In", ["true"], True, True),
        ("In", ["null"], None, True),
        ("In", ["prod"], ["prod"], True),
        ("In", ["prod"], {"a": 1}, True),
        ("NotIn", ["USD", "EUR"], "EUR", False),
        ("NotIn", ["USD", "EUR"], "XAU", True),
        ("NotIn", ["USD"], ["USD"], True),
        ("Exists", [], None, True),
        ("DoesNotExist", [], None, False),
        ("Gt", ["100"], 100, False),
        ("Gt", ["100"], 100.01, True),
        ("Gt", ["100"], "100.01", True),
        ("Gt", ["100"], "1e3", True),
        ("Gt", ["100"], "a hundred and one", True),
        ("Gt", ["100"], True, True),
        ("Gt", ["100"], None, True),
        ("Gt", ["100"], [5], True),
        ("Gt", ["100"], "5\n", True),
        ("Gt", ["100"], " 5", True),
        ("Gt", ["100"], "٥", True),
        ("Gt", ["100"], "NaN", True),
        ("Gt", ["-1.5"], -2, False),
        ("Lt", ["0"], -0.01, True),
        ("Lt", ["0"], 0, False),
        ("Matches", ["@example[.]org$"], "a@example.org", True),
        ("Matches", ["^rm ", "DROP TABLE"], "rm -rf /", True),
        ("Matches", ["^rm ", "DROP TABLE"], "ls; DROP TABLE x", True),
        ("Matches", ["^rm "], "ls", False),
        ("Matches", ["(?i)drop"], "DrOp", True),
        ("Matches", ["^5"], 55, True),
        ("Matches", ["x"], ["y"], True),
    ],
)
def test_a_condition_on_one_argument(operator: str, values: list[str], value: Any, needed: bool) -> None:
    arguments = json.dumps({"amount": value})
    assert needs_approval(rule(("amount", operator, values)), arguments) is needed


@pytest.mark.parametrize("operator", ["In", "NotIn", "Gt", "Lt", "Matches", "DoesNotExist"])
def test_a_missing_argument_needs_approval(operator: str) -> None:
    values = [] if operator == "DoesNotExist" else ["1"]
    assert needs_approval(rule(("amount", operator, values)), "{}")
    assert needs_approval(rule(("order.amount", operator, values)), '{"order": 7}')


def test_a_missing_argument_does_not_exist() -> None:
    assert not needs_approval(rule(("force", "Exists", [])), "{}")


@pytest.mark.parametrize(
    "arguments",
    ["", "{", "[1]", "null", "5", '{"amount": 1, "amount": 1000}', '{"amount": NaN}', "\ud800", "[" * 200],
)
def test_arguments_that_cannot_be_read_need_approval(arguments: str) -> None:
    assert needs_approval(rule(("amount", "Gt", ["100"])), arguments)


def test_one_condition_that_holds_is_enough() -> None:
    either = rule(("amount", "Gt", ["100"]), ("currency", "NotIn", ["EUR"]))
    assert not needs_approval(either, '{"amount": 5, "currency": "EUR"}')
    assert needs_approval(either, '{"amount": 500, "currency": "EUR"}')
    assert needs_approval(either, '{"amount": 5, "currency": "USD"}')


@pytest.mark.parametrize(
    ("path", "needed"),
    [
        ("order.items.0.price", True),
        ("order.items.1.price", False),
        ("order.items.2.price", True),
        ("order.items.-1.price", True),
        ("order.items.x.price", True),
        ("order", True),
    ],
)
def test_dots_lead_into_objects_and_lists(path: str, needed: bool) -> None:
    arguments = '{"order": {"items": [{"price": 500}, {"price": 5}]}}'
    assert needs_approval(rule((path, "Gt", ["100"])), arguments) is needed


def test_numbers_are_compared_exactly_whatever_their_size() -> None:
    assert needs_approval(rule(("n", "Gt", ["9007199254740992"])), '{"n": 9007199254740993}')
    assert not needs_approval(rule(("n", "Gt", ["9007199254740993"])), '{"n": 9007199254740992}')
    assert needs_approval(rule(("n", "Lt", ["1"])), '{"n": 1e999999999}'), "beyond all measure: ask"


def test_always_and_never() -> None:
    assert needs_approval(ApprovalRule.model_validate({"policy": "Always"}), "{}")
    assert not needs_approval(None, "not even JSON")


def test_no_pattern_can_be_made_to_run_for_long() -> None:
    began = time.monotonic()
    assert not needs_approval(
        rule(("text", "Matches", ["^(a+)+$"])), json.dumps({"text": "a" * 50_000 + "!"})
    )
    assert time.monotonic() - began < 2
