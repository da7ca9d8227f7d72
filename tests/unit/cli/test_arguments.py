"""What the command line says to what is said to it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agentrun.cli.main import run_command

COMMANDS = ("run", "resume", "list", "show", "events", "cancel", "approvals", "approve", "deny")
HEAVY = ("asyncpg", "pydantic", "pydantic_ai", "httpx2", "rich", "yaml", "google.protobuf", "asyncio")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["run"], "the following arguments are required: FILE (see agentrun run --help)"),
        (["resume"], "the following arguments are required: RUN (see agentrun resume --help)"),
        (["fly"], "invalid choice: 'fly'"),
        (["list", "--limit", "0"], "--limit: must be a whole number of at least 1, not '0'"),
        (["list", "-o", "xml"], "-o/--output: invalid choice: 'xml'"),
        (["resume", "abcd", "--budget-tokens", "many"], "must be a whole number of at least 1, not 'many'"),
        (["resume", "abcd", "--budget-retries", "-1"], "--budget-retries"),
        (["events", "abcd", "--aft", "1"], "unrecognized arguments: --aft"),
        (["run", "/nonexistent/x.yaml"], "/nonexistent/x.yaml cannot be read: No such file or directory"),
        (["run", "."], ". cannot be read: Is a directory"),
        (["run", "examples/hello.yaml", "--run-id", "7"], "--run-id must be a UUID, not '7'"),
        (["list", "--store", "sqlite://x"], "--store must be a URL that begins with postgresql://"),
    ],
)
def test_a_mistake_is_told_in_one_line(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("agentrun: ") and err.count("\n") == 1
    assert said in err


def test_help_names_every_command_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for name in COMMANDS:
        assert f" {name} " in said
    assert "0 ended well, 1 ended in failure, 2 cannot start, 75 paused, 76 fenced off" in said
    for name in COMMANDS:
        assert run_command([name, "--help"]) == 0


def test_without_a_command_help_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "usage: agentrun" in err


def test_a_manifest_that_is_wrong_is_told_a_line_a_mistake(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "bad.yaml"
    head = "apiVersion: agentrun.dev/v1alpha1\nkind: AgentRun\nmetadata: {name: x}\n"
    file.write_text(head + "spec: {budget: {tokens: 0, turns: 0}}\n")
    assert run_command(["run", str(file)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 2
    assert all(line.startswith(f"agentrun: {file}: spec") for line in lines)


def test_a_fault_of_our_own_is_told_in_one_line_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentrun.cli import list as listing

    def fail(args: object) -> int:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(listing, "run", fail)
    assert run_command(["list"]) == 70
    said = "agentrun: a fault of agentrun: RuntimeError: two lines (AGENTRUN_LOG=debug shows where)\n"
    assert capsys.readouterr().err == said


def loaded_by(*argv: str) -> list[str]:
    code = (
        "import json, sys\n"
        "from agentrun.cli.main import run_command\n"
        f"run_command({list(argv)!r})\n"
        f"print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_help_imports_nothing_that_it_does_not_need() -> None:
    assert loaded_by("--help") == []
    assert loaded_by("run", "--help") == []


def test_reading_runs_imports_no_manifest_models_and_no_display() -> None:
    found = loaded_by("list", "--store", "postgresql://nobody@127.0.0.1:1/none")
    assert not {"pydantic", "pydantic_ai", "httpx2", "rich", "yaml"} & set(found)


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agentrun", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("agentrun 0")
