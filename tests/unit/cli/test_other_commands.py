"""Commands of other packages: known by their entry points, and no word of ours is taken by them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata

import pytest

from agentrun.cli import main


def test_a_command_of_another_package_gets_its_arguments_and_gives_its_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Sequence[str]] = []

    def command(argv: Sequence[str]) -> int:
        seen.append(list(argv))
        return 7

    class Entry:
        def load(self) -> object:
            return command

    def entry_points(*, group: str, name: str) -> list[Entry]:
        return [Entry()] if (group, name) == ("agentrun.commands", "operator") else []

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    assert main.run_command(["operator", "--help"]) == 7
    assert seen == [["--help"]]


@pytest.mark.parametrize("argv", [["runn"], ["--version"], []])
def test_what_is_no_such_command_is_told_as_ever(argv: list[str]) -> None:
    assert main._command_of_another_package(argv) is None
