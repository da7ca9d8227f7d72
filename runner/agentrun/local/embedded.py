"""An embedded Postgres for one user of one machine.

The command starts it (`EmbeddedPostgres.start`) and uses its `dsn`; commands that
run at the same time share one server, and the last to end stops it. Nothing but
what the kernel frees at any death tells who is alive, so that kill -9 at any
point leaves nothing to repair by hand. Under `<data folder>/postgres`:

    start.lock    held exclusively while the server is started or stopped
    users.lock    held shared by each command that uses the server
    server.lock   held by the server: its processes inherit the open file
    stopping      exists from before the server is told to stop until it is gone
    data, socket, server.log

The invariant: whoever holds `start.lock` knows whether a server lives (somebody
holds `server.lock`) and whether it has users (somebody holds `users.lock`), and
process ids are used for signals only, never to decide.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import stat
import struct
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from agentrun.local import locks, pg_install
from agentrun.local.errors import EmbeddedPostgresError, one_line
from agentrun.local.pg_install import DATABASE, SUPERUSER, Account
from agentrun.local.process import start_ticks

__all__ = ["EmbeddedPostgres", "EmbeddedPostgresError", "stop_unused"]

PORT = 5432
SOCKET_PATH_BYTES_MAX = 107
LOG_BYTES_MAX = 1 << 20
START_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 30.0
QUIT_SECONDS_MAX = 10.0
ANSWER_SECONDS_MAX = 2.0
SSL_REQUEST = struct.pack("!ii", 8, 80877103)  # over a local socket the answer is N

SETTINGS = {
    # Durability is what a run is promised.
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    # One user's laptop.
    "shared_buffers": "64MB",
    "max_connections": "100",
    "huge_pages": "off",
    "jit": "off",
    "io_method": "sync",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_logical_replication_workers": "0",
    "min_wal_size": "32MB",
    "max_wal_size": "256MB",
    # Nothing but the socket; its folder is what protects it.
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    # A log that stays small and holds no values of statements.
    "log_min_messages": "warning",
    "log_min_error_statement": "panic",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] ",
    "log_timezone": "UTC",
    "timezone": "UTC",
}


class EmbeddedPostgres:
    """A running server that this command uses until `stop`. Made by `start`."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._base = data_dir / "postgres"
        self._data = self._base / "data"
        self._log = self._base / "server.log"
        self._start_lock = self._base / "start.lock"
        self._users: int | None = None
        self.dsn = ""
        """For asyncpg: user, database, and the socket's folder as `host`."""

    @classmethod
    def start(cls, data_dir: Path | None = None) -> Self:
        """Starts the server of this data folder, or joins the one that runs. Blocks.

        Without a folder: AGENTRUN_DATA_DIR, else the platform's place. Raises
        EmbeddedPostgresError.
        """
        server = cls((data_dir or pg_install.default_data_dir()).absolute())
        with one_line(server._base):
            root = os.geteuid() == 0
            pg_install.make_folder(server._base, 0o755 if root else 0o700)
            with locks.exclusive(server._start_lock) as lock:
                users = locks.open_private(server._base / "users.lock")
                try:
                    fcntl.flock(users, fcntl.LOCK_SH)  # free at once: exclusive only under start.lock
                    server._ensure_ready(lock)
                except BaseException:
                    os.close(users)
                    raise
                server._users = users
        return server

    def stop(self) -> bool:
        """Ends this command's use; the last one stops the server. True if it did."""
        users, self._users = self._users, None
        if users is None:
            return False
        try:
            with one_line(self._base), locks.exclusive(self._start_lock):
                # A failed conversion gives up the shared lock, which is what we want as well.
                return locks.locked(users, fcntl.LOCK_EX) and self._end(signal.SIGINT)
        finally:
            os.close(users)

    def lives(self) -> bool:
        """Whether the server's first process lives, as far as a look from outside can tell."""
        pid = self._postmaster()[0]
        if pid is None:
            return False
        return start_ticks(pid) is not None or not Path("/proc/self").exists()

    def revive(self) -> bool:
        """Starts the server again if it has died under its users. False: it lives. Blocks.

        Raises EmbeddedPostgresError, also where its data are gone: it makes none.
        """
        with one_line(self._base):
            if not self._data.exists():
                raise EmbeddedPostgresError(f"{self._data} is gone, and with it what was kept there")
            with locks.exclusive(self._start_lock) as lock:
                status, folder = self._postmaster()[1:]
                if self._alive() and status == "ready" and _answers(folder):
                    return False
                before = self.dsn
                self._ensure_ready(lock)
        if self.dsn != before:
            raise EmbeddedPostgresError(
                "the embedded Postgres has another socket now: stop the run and resume it"
            )
        return True

    def restart_immediate(self) -> None:
        """Crashes the server under all its users and starts it again, as a failover would look."""
        with one_line(self._base), locks.exclusive(self._start_lock) as lock:
            self._end(signal.SIGQUIT)
            self._ensure_ready(lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _alive(self) -> bool:
        """Whether any process of a server lives. Only under start.lock."""
        handle = locks.open_private(self._base / "server.lock")
        try:
            return not locks.locked(handle, fcntl.LOCK_SH)
        finally:
            os.close(handle)

    def _ensure_ready(self, lock: int) -> None:
        """Comes back when the server takes connections, and sets `dsn`."""
        if (self._base / "stopping").exists():
            self._end(signal.SIGINT)
        launched_at: int | None = None  # the log's size then
        for _ in locks.patience(START_SECONDS_MAX):
            if not self._alive():
                if launched_at is not None:
                    raise EmbeddedPostgresError(self._why(launched_at))
                launched_at = self._launch(lock)
            status, folder = self._postmaster()[1:]
            # "ready" may have outlived its writer; "stopping" ends in a dead server.
            if status == "ready" and _answers(folder):
                self.dsn = (
                    f"postgresql://{SUPERUSER}@/{DATABASE}?host={quote(str(folder), safe='/')}&port={PORT}"
                )
                return
        raise EmbeddedPostgresError(
            f"the embedded Postgres was not ready after {START_SECONDS_MAX:.0f} s (log: {self._log})"
        )

    def _launch(self, lock: int) -> int:
        """Starts a server where none lives; returns the size of its log before."""
        account = pg_install.server_account(self._data)
        pg_install.require_reachable(self._base, account)
        programs = pg_install.find_programs(self._data_dir, account)
        if not self._data.exists():
            pg_install.make_cluster(self._data, programs, account, lock)
        pg_install.require_same_major(self._data, programs)
        # No server lives, whatever process has the number in it by now.
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        folder = self._socket_folder(account)
        settings = [f"--{name}={value}" for name, value in SETTINGS.items()]
        command = [str(programs.bin / "postgres"), "-D", str(self._data), "-k", str(folder), *settings]
        if self._log.exists() and self._log.stat().st_size > LOG_BYTES_MAX:
            self._log.replace(self._log.with_name("server.log.1"))
        held = locks.open_private(self._base / "server.lock")
        output = locks.open_private(self._log, os.O_WRONLY | os.O_APPEND)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            size = os.fstat(output).st_size
            # The shell lets go of it at once: a server is no child of ours, and in no terminal's reach.
            subprocess.run(
                ["/bin/sh", "-c", '"$@" &', "sh", *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[held],
                start_new_session=True,
                check=True,
                **account.process_options(),
            )
        finally:
            os.close(output)
            os.close(held)  # closed and not unlocked: the lock is the server's now
        return size

    def _socket_folder(self, account: Account) -> Path:
        """A folder for the socket that its owner alone can enter, and whose path is short enough."""
        folder = self._base / "socket"
        fits = len(os.fsencode(folder / f".s.PGSQL.{PORT}")) <= SOCKET_PATH_BYTES_MAX
        # Both -k and a DSN's host are lists, with commas between.
        if fits and not re.search(r'[,"]', str(folder)):
            pg_install.make_folder(folder, 0o700, account)
        else:
            folder = self._short_folder(account)
        for old in folder.glob(".s.PGSQL.*"):
            old.unlink()
        return folder

    def _short_folder(self, account: Account) -> Path:
        """The one that was used last if it still is ours, else a new one whose name cannot be foreseen."""
        note = self._base / "socket-folder"
        with suppress(OSError):
            folder = Path(note.read_text())
            found = folder.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == account.uid and not found.st_mode & 0o077:
                return folder
        folder = Path(tempfile.mkdtemp(prefix="agentrun-", dir="/tmp"))
        if account.switch:
            os.chown(folder, account.uid, account.gid)
        note.write_text(str(folder))
        return folder

    def _postmaster(self) -> tuple[int | None, str, Path | None]:
        """Process id, status and the socket's folder, as the server's own file has them."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
            return int(lines[0]), lines[7].strip(), Path(lines[4])
        except (FileNotFoundError, IndexError, ValueError):
            return None, "", None  # none yet, or half written

    def _end(self, how: signal.Signals) -> bool:
        """Stops the server if one lives. True if one did. Only under start.lock."""
        marker = self._base / "stopping"
        alive = self._alive()
        if alive:
            with suppress(OSError):  # a full disk must not keep a server running
                marker.touch()
            gone = self._signalled(how, STOP_SECONDS_MAX) or self._signalled(signal.SIGQUIT, QUIT_SECONDS_MAX)
            if not gone:
                raise EmbeddedPostgresError(f"the embedded Postgres does not stop (log: {self._log})")
        marker.unlink(missing_ok=True)
        return alive

    def _signalled(self, how: signal.Signals, seconds_max: float) -> bool:
        """Signals the server, once it has said its number, and waits. True when it is gone."""
        told = False
        for _ in locks.patience(seconds_max):
            if not self._alive():
                return True
            pid = self._postmaster()[0]
            if pid is not None and not told and _is_postgres(pid):
                told = True
                with suppress(ProcessLookupError):
                    os.kill(pid, how)
        return False

    def _why(self, size: int) -> str:
        with self._log.open("rb") as log:
            log.seek(size)
            said = log.read(LOG_BYTES_MAX).decode(errors="replace")
        line = pg_install.telling_line(said)
        return f"the embedded Postgres did not start: {line} (log: {self._log})"


def stop_unused(data_dir: Path) -> bool:
    """Stops a server that a killed command left behind. True if there was one; with users it stays."""
    server = EmbeddedPostgres(data_dir.absolute())
    if not server._base.is_dir():
        return False
    server._users = locks.open_private(server._base / "users.lock")
    return server.stop()


def _answers(folder: Path | None) -> bool:
    """Whether the postmaster answers: the socket of one killed a moment ago may still accept."""
    with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
        probe.settimeout(ANSWER_SECONDS_MAX)
        probe.connect(str(folder / f".s.PGSQL.{PORT}") if folder else "")
        probe.sendall(SSL_REQUEST)
        return probe.recv(1) == b"N"
    return False


def _is_postgres(pid: int) -> bool:
    """False when the number is another program's by now, where the system can tell."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith("postgres")
    except FileNotFoundError:
        return not Path("/proc/self").exists()
