"""`agentrun api`: serves the API until it is told to stop.

Who calls: the `agentrun` command. What holds: settings that are missing or bad are told one a
line, with exit code 2; the token of this machine is in a file that only its user can read.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from agentrun.local.errors import LocalError
from agentrun.local.stores import DSN_VARIABLE, place_of
from agentrun.log.environment import SettingsError
from agentrun.log.errors import LogError
from agentrun.log.stderr import set_up_logging
from agentrun_api import settings as settings_
from agentrun_api.serving import serve_cluster, serve_here
from agentrun_api.settings import Auth, Settings

EXIT_CANNOT_START = 2
TOKEN_BYTES = 32


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Serves; the exit code."""
    parser = argparse.ArgumentParser(
        prog="agentrun api",
        description="Serves runs over HTTP on this machine. docs/api.md has its settings.",
    )
    parser.add_argument("--store", metavar="URL", help="the database; the embedded one unless set")
    parser.add_argument("--host", help="a loopback address; 127.0.0.1 unless set")
    parser.add_argument("--port", help="8090 unless set; 0: any that is free")
    args = parser.parse_args(argv)
    named = {"AGENTRUN_API_HOST": args.host, "AGENTRUN_API_PORT": args.port}
    try:
        settings = settings_.read({**environ, **{name: text for name, text in named.items() if text}})
        set_up_logging(settings.log_level, as_json=settings.log_json)
        if settings.auth is Auth.CLUSTER:
            return _serve_cluster(args.store or environ.get(DSN_VARIABLE, ""), settings)
        with place_of(args.store, environ) as place:
            assert place is not None
            file = settings.token_file or token_file()
            asyncio.run(serve_here(place, settings, environ, read_token(file), file))
            return os.EX_OK
    except SettingsError as error:
        return _refuse(*error.problems)
    except (LocalError, LogError, OSError) as error:
        return _refuse(str(error))


def _refuse(*problems: str) -> int:
    for problem in problems:
        print(f"agentrun api: {problem}", file=sys.stderr)
    return EXIT_CANNOT_START


def _serve_cluster(dsn: str, settings: Settings) -> int:
    from agentrun_api.kube import KubeUnavailable

    if not dsn:
        return _refuse(f"{DSN_VARIABLE} is not set")
    try:
        asyncio.run(serve_cluster(dsn, settings))
    except KubeUnavailable as error:
        return _refuse(str(error))
    return os.EX_OK


def token_file() -> Path:
    """Where this user's token is."""
    from agentrun.local.pg_install import default_data_dir

    return default_data_dir() / "api-token"


def read_token(file: Path) -> str:
    """The token, made where there is none. Raises LocalError."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as made:
                made.write(secrets.token_urlsafe(TOKEN_BYTES) + "\n")
        token = file.read_text().strip()
    except (OSError, ValueError) as error:
        raise LocalError(f"the token's file {file} cannot be used: {error}") from error
    if len(token) < TOKEN_BYTES:
        raise LocalError(
            f"{file} holds no token of at least {TOKEN_BYTES} characters: remove it, or write one"
        )
    return token
