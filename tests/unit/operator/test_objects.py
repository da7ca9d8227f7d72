"""Objects, owners and processes are read whatever they hold."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from agentrun_operator.facts import Owner, parse_owner
from agentrun_operator.objects import KEPT_MAX, Objects
from agentrun_operator.processes import Process, parse_process
from tests.unit.operator.builders import UID, body, found

# --- names


def test_an_owner_is_read_as_it_was_written() -> None:
    owner = Owner(installation="agentrun", namespace="demo", name="a.b-c", uid=UID)
    assert parse_owner(str(owner)) == owner
    for text in ("local/hello", "", "a/b/c/", "a/b/c/d/e"):
        assert parse_owner(text) is None


def test_a_process_is_read_as_it_was_written_and_anything_else_is_a_pods() -> None:
    for process in (Process(operator="o", pod="p", generation=7), Process(operator="o", ends=True)):
        assert parse_process(process.to_json()) == process
    assert parse_process('{"host": "h", "pid": 3}') == Process()
    assert parse_process("no JSON") == Process()


# --- objects


def test_an_objects_run_is_its_uid_unless_it_names_another() -> None:
    assert found().run_id == UUID(UID) and not found().given_id
    other = "11111111-2222-4333-8444-555555555555"
    assert found(runID=other).run_id == UUID(other) and found(runID=other).given_id


def test_objects_are_understood_once_a_generation_and_not_kept_for_ever() -> None:
    objects = Objects()
    first = objects.parse(body()).run
    assert objects.parse(body(status={"phase": "Running"})).run is first
    for _ in range(KEPT_MAX):
        objects.parse(body(metadata={"uid": str(uuid4())}))
    assert objects.parse(body()).run is not first


@pytest.mark.parametrize("spec", [None, {}, [], {"agent": 3}, {"prompt": "x" * 70000}])
def test_any_object_is_a_fact_and_no_exception(spec: Any) -> None:
    odd = body() | {"spec": spec}
    parsed = Objects().parse(odd)
    assert parsed.run is None and parsed.problem_reason == "InvalidSpec" and parsed.problem
