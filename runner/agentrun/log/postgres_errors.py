"""What an error of the driver means: try again later, or no for good.

Who calls: `links` and `migrations`. Everything that is not known to pass by itself is
StoreRefused, so that a fault of ours is loud and is not retried for ever. No message
holds a password: the driver's own words about a DSN are never passed on.
"""

from __future__ import annotations

import ssl

import asyncpg

from agentrun.log.errors import LogError, StoreRefused, StoreUnavailable

TRANSIENT_CLASSES = {
    "08": "the connection failed",
    "25": "the server takes no writes",
    "40": "the transaction was rolled back",
    "53": "the server is out of resources",
    "54": "a limit of the server is reached",
    "55": "an object is in use",
    "57": "the server is stopping, starting, or was told to stop this",
    "58": "the server's system failed",
}
"""SQLSTATE classes of what passes by itself."""

REFUSED = {
    "28P01": "the password is wrong",
    "28000": "the role may not log in",
    "3D000": "there is no such database",
    "3F000": "there is no such schema: create it, or change the DSN's search_path",
    "42501": "the role lacks rights",
    "42P01": "the tables are missing: let the store migrate, or check the DSN's search_path",
    "42703": "the tables are those of another build",
    "26000": "prepared statements get lost: turn them off behind a transaction-mode pooler",
    "42P05": "prepared statements collide: turn them off behind a transaction-mode pooler",
    "57P04": "the database was dropped",
}
"""SQLSTATEs with a cause that a person can mend."""


def explain(error: Exception, where: str) -> LogError:
    """The error to raise in place of `error`; `where` says what was asked of which server."""
    if isinstance(error, asyncpg.PostgresError):
        return _of_sqlstate(error, where)
    if isinstance(error, asyncpg.exceptions.DataError):
        return StoreRefused(f"{where}: a value does not fit its column: {error}")
    if isinstance(error, ssl.SSLCertVerificationError):
        return StoreRefused(f"{where}: the server's certificate is not trusted: {error.verify_message}")
    if isinstance(error, TimeoutError):
        return StoreUnavailable(f"{where}: no answer in time")
    if isinstance(error, OSError | asyncpg.InterfaceError | asyncpg.exceptions.InternalClientError):
        return StoreUnavailable(f"{where}: {type(error).__name__}: {error}")
    return StoreRefused(f"{where}: unexpected {type(error).__name__}: {error}")


def _of_sqlstate(error: asyncpg.PostgresError, where: str) -> LogError:
    state = error.sqlstate or "?????"
    said = f"{error.as_dict().get('message') or error} ({state})"
    if state in REFUSED:
        return StoreRefused(f"{where}: {REFUSED[state]}: {said}")
    why = TRANSIENT_CLASSES.get(state[:2])
    if why is not None:
        return StoreUnavailable(f"{where}: {why}: {said}")
    return StoreRefused(f"{where}: {said}")
