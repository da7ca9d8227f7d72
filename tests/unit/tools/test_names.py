"""The names that models are told of servers' tools."""

from __future__ import annotations

import random
import re

import pytest

from agentrun.tools.names import labels, told_names

ACCEPTED = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")

# These stand in transcripts of stored runs: no line of this table may ever change.
LABELS = [
    (["read_file"], ["read_file"]),
    (["get-alerts"], ["get-alerts"]),
    (["calendar.respondToEvent"], ["calendar_respondToEvent"]),
    (["user-profile/update"], ["user-profile_update"]),
    (["Create CIFS Share"], ["Create_CIFS_Share"]),
    (["3d_print"], ["_3d_print"]),
    (["-x"], ["_-x"]),
    (["x" * 64], ["x" * 64]),
    (["x" * 90], ["x" * 55 + "_efdfd9ee"]),
    (["🙂"], ["__d06f1525"]),
    (["a.b", "a_b"], ["a_b_2e7336dc", "a_b"]),
    (["a.b", "a/b"], ["a_b_2e7336dc", "a_b_c14cddc0"]),
    (["", "é"], ["__e3b0c442", "__4a99557e"]),
]


@pytest.mark.parametrize(("names", "expected"), LABELS)
def test_labels_are_as_they_always_were(names: list[str], expected: list[str]) -> None:
    assert list(labels(names).values()) == expected


TOLD = [
    ({"s": ["read"]}, [], ["read"]),
    ({"s": ["read"], "t": ["read"]}, [], ["s_read", "t_read"]),
    ({"s": ["read"]}, ["read"], ["s_read"]),
    ({"s": ["read", "s_read"]}, ["read"], ["s_read_e8adef9d", "s_read"]),
    ({"s": ["x" * 64], "t": ["x" * 64]}, [], ["s_" + "x" * 53 + "_400e6785", "t_" + "x" * 53 + "_29073d6b"]),
]


@pytest.mark.parametrize(("servers", "taken", "expected"), TOLD)
def test_told_names_are_as_they_always_were(
    servers: dict[str, list[str]], taken: list[str], expected: list[str]
) -> None:
    assert list(told_names(servers, taken).values()) == expected


@pytest.mark.parametrize("seed", range(30))
def test_any_names_are_mapped_one_to_one_whatever_their_order(seed: int) -> None:
    rng = random.Random(seed)
    letters = "ab_-./ é🙂1"
    names = ["".join(rng.choices(letters, k=rng.choice((0, 1, 2, 3, 70)))) for _ in range(60)]
    found = labels(names)
    rng.shuffle(names)
    assert labels(names) == found
    assert len(set(found.values())) == len(found)
    assert all(ACCEPTED.fullmatch(label) for label in found.values())
    servers = {"s": list(found.values())[:40], "t": list(found.values())[20:]}
    taken = list(found.values())[::7]
    told = told_names(servers, taken)
    assert len({*told.values(), *taken}) == len(told) + len(set(taken))
    assert all(ACCEPTED.fullmatch(name) for name in told.values())
