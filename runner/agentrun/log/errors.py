"""The errors of the run log, each with what its reader can do about it."""

from __future__ import annotations

from uuid import UUID


class LogError(Exception):
    """Base of all errors of `agentrun.log`."""


class StoreUnavailable(LogError):
    """The store cannot be reached or cannot write now; the same call may go well later.

    A statement that raised this may or may not have been executed.
    """


class StoreRefused(LogError):
    """The store answered, and said no for good: rights, a missing schema, a bad DSN."""


class Fenced(LogError):
    """Another process owns the run, or there is no run any more: stop at once (exit code 76)."""

    def __init__(self, run_id: UUID, why: str) -> None:
        super().__init__(f"run {run_id}: fenced off: {why}")
        self.run_id = run_id
        self.why = why


class RunEnded(LogError):
    """The log holds a final record, with no `reopened` record behind it."""

    def __init__(self, run_id: UUID, seq: int) -> None:
        super().__init__(f"run {run_id}: ended by record {seq}")
        self.run_id = run_id
        self.seq = seq


class CorruptLog(LogError):
    """The log cannot be replayed: a hole, bytes that are no record, an unknown format or kind."""

    def __init__(self, run_id: UUID, seq: int, why: str) -> None:
        super().__init__(f"run {run_id}, record {seq}: {why}")
        self.run_id = run_id
        self.seq = seq
        self.why = why


class NewerFormat(CorruptLog):
    """A record was written by a newer build; this one must not go on."""


class BlobMissing(LogError):
    """A record points at a blob that is not there."""


class BlobCorrupt(LogError):
    """A blob's bytes are not those that the record names."""


class BlobTooLarge(LogError):
    """More bytes than the configured store takes."""
