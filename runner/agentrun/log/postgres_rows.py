"""Rows of the database as the values of `store`, and what may go in as text.

Who calls: `postgres`. Pure.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from agentrun.log.store import AttemptOutcome, AttemptRow, Levels, Look, RunInfo, RunRow, Standing

if TYPE_CHECKING:
    from asyncpg import Record


def refuse_nul(*texts: str) -> None:
    """ValueError for text that Postgres cannot hold (`text.safe_text` replaces it where it enters)."""
    for text in texts:
        if "\0" in text:
            raise ValueError(f"text with a NUL reached the store: {text[:80]!r}")


def server_name(started: datetime) -> str:
    """The server's incarnation as a token names it: its start time, to the microsecond."""
    return started.isoformat(timespec="microseconds")


def server_started(name: str) -> datetime | None:
    """The reverse of `server_name`; None for what names no server."""
    try:
        started = datetime.fromisoformat(name)
    except ValueError:
        return None
    return started if started.tzinfo is not None else None


def levels(row: Record) -> Levels:
    return Levels(
        generation=row["generation"],
        suspend=row["suspend"],
        shutdown=row["shutdown"],
        budget=row["budget"],
    )


def look(row: Record) -> Look:
    return Look(
        epoch=row["epoch"],
        attempt=row["attempt"],
        ended=row["ended"],
        head=row["head"],
        levels=levels(row),
        server=server_name(row["server"]),
        claimer=row["claimer"],
        inbox=row["inbox"],
    )


def attempt(row: Record) -> AttemptRow:
    outcome = row["outcome"]
    return AttemptRow(
        attempt=row["newest_attempt"],
        process=row["process"],
        confirmed_age_seconds=row["confirmed_age_seconds"],
        claimed=row["claimed"],
        outcome=None if outcome is None else AttemptOutcome(outcome),
        reason=row["reason"],
        started_at=row["attempt_started_at"],
        ended_at=row["attempt_ended_at"],
    )


def run_info(row: Record) -> RunInfo:
    run = RunRow(
        run_id=row["run_id"],
        owner=row["owner"],
        name=row["name"],
        definition=row["definition"],
        digest=row["digest"],
        levels=levels(row),
        epoch=row["epoch"],
        attempt=row["attempt"],
        ended=row["ended"],
        created_at=row["created_at"],
        ended_at=row["ended_at"],
    )
    newest = None if row["newest_attempt"] is None else attempt(row)
    return RunInfo(
        run=run,
        last_attempt=newest,
        summary=row["summary"],
        read_at=row["read_at"],
        inbox=row["inbox"],
    )


def standing(row: Record) -> Standing:
    outcome = row["outcome"]
    return Standing(
        run_id=row["run_id"],
        owner=row["owner"],
        attempt=row["attempt"],
        ended=row["ended"],
        generation=row["generation"],
        suspend=row["suspend"],
        claimed=row["claimed"],
        outcome=None if outcome is None else AttemptOutcome(outcome),
        summary_head=row["summary_head"],
        inbox=row["inbox"],
    )
