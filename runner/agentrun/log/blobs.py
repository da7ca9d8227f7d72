"""Where bytes go that are too large for a record.

Who calls: what builds records (`put`, before the record that points at the blob is
appended) and what reads them (`get`).

What holds: a blob is named by its run and the hash of its bytes, so that storing it
again changes nothing; bytes that are not those that the record names are never
returned. A reference comes out of a log: nothing that its url says leads anywhere
but to the blob of that run and hash.
"""

from __future__ import annotations

import asyncio
import os
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Protocol
from uuid import UUID

from agentrun.log.errors import BlobCorrupt, BlobMissing, BlobTooLarge
from agentrun.log.store import LogStore
from agentrun.proto import log_pb2 as pb

TABLE_BYTES_MAX = 64 * 1024 * 1024
"""The largest blob that the table takes: it passes through the database in one piece."""

FOLDER_MODE = 0o700


class BlobStore(Protocol):
    """Raises StoreUnavailable, or OSError from a folder, where the bytes cannot be reached now."""

    @property
    def with_log(self) -> bool:
        """They lie in the log's own store: a failover that loses a record may lose its blobs, too."""

    async def put(self, run_id: UUID, data: bytes, media_type: str) -> pb.BlobRef:
        """Stores the bytes durably; the reference is for the record. BlobTooLarge: over the bound.

        `media_type` is for stores that show it to others; the record holds it in any case."""

    async def get(self, run_id: UUID, ref: pb.BlobRef) -> bytes:
        """The bytes, checked. BlobMissing: there are none; BlobCorrupt: they are others."""


class TableBlobs:
    """Blobs in the table `run_blob`, up to a bound. Their url is `table:<hash>`."""

    SCHEME = "table"
    with_log = True

    def __init__(self, store: LogStore, *, bytes_max: int = TABLE_BYTES_MAX) -> None:
        self._store = store
        self._bytes_max = bytes_max

    async def put(self, run_id: UUID, data: bytes, media_type: str) -> pb.BlobRef:
        if len(data) > self._bytes_max:
            raise BlobTooLarge(
                f"run {run_id}: {len(data)} bytes are more than the database takes ({self._bytes_max}): "
                "configure a blob store"
            )
        digest = sha256(data).digest()
        await self._store.put_blob(run_id, digest, data)
        return pb.BlobRef(url=f"{self.SCHEME}:{digest.hex()}", size_bytes=len(data), sha256=digest)

    async def get(self, run_id: UUID, ref: pb.BlobRef) -> bytes:
        _require_scheme(run_id, ref, self.SCHEME)
        return _checked(run_id, ref, await self._store.get_blob(run_id, ref.sha256))


class FolderBlobs:
    """Blobs in files, for runs on one machine. Their url is `folder:<run>/<hash>`.

    A file appears under its name when all of its bytes are on the disk, or not at all.
    """

    SCHEME = "folder"
    with_log = False

    def __init__(self, path: Path) -> None:
        self._path = path

    async def put(self, run_id: UUID, data: bytes, media_type: str) -> pb.BlobRef:
        return await asyncio.to_thread(self._put, run_id, data)

    async def get(self, run_id: UUID, ref: pb.BlobRef) -> bytes:
        _require_scheme(run_id, ref, self.SCHEME)
        return await asyncio.to_thread(self._get, run_id, ref)

    def _file(self, run_id: UUID, digest: bytes) -> Path:
        """From the run and the hash alone: the url's text is never a path."""
        return self._path / str(run_id) / digest.hex()

    def _put(self, run_id: UUID, data: bytes) -> pb.BlobRef:
        digest = sha256(data).digest()
        file = self._file(run_id, digest)
        new_top = self._make_folder(file.parent)
        if not _holds(file, digest):
            _write(file, data)
        # Also where the file was there: whoever renamed it may not have come to this yet.
        for folder in (file.parent, self._path, *new_top):
            _flush_folder(folder)
        return pb.BlobRef(url=f"{self.SCHEME}:{run_id}/{digest.hex()}", size_bytes=len(data), sha256=digest)

    def _make_folder(self, folder: Path) -> list[Path]:
        """Makes the run's folder; returns what else must be flushed for it."""
        top_is_new = not self._path.is_dir()
        self._path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        return [self._path.parent] if top_is_new else []

    def _get(self, run_id: UUID, ref: pb.BlobRef) -> bytes:
        try:
            data = self._file(run_id, ref.sha256).read_bytes()
        except FileNotFoundError:
            return _checked(run_id, ref, None)
        return _checked(run_id, ref, data)


def _require_scheme(run_id: UUID, ref: pb.BlobRef, scheme: str) -> None:
    if ref.url.partition(":")[0] != scheme or len(ref.sha256) != sha256().digest_size:
        raise BlobMissing(
            f"run {run_id}: the blob {ref.sha256.hex()} is at {ref.url[:100]!r}, and not in the "
            f"{scheme} that is configured"
        )


def _checked(run_id: UUID, ref: pb.BlobRef, data: bytes | None) -> bytes:
    if data is None:
        raise BlobMissing(f"run {run_id}: there is no blob {ref.sha256.hex()} ({ref.url[:100]})")
    if len(data) != ref.size_bytes or sha256(data).digest() != ref.sha256:
        raise BlobCorrupt(
            f"run {run_id}: the blob {ref.sha256.hex()} holds other bytes than were stored: "
            f"{len(data)} of {ref.size_bytes}, or changed ones ({ref.url[:100]})"
        )
    return data


def _holds(file: Path, digest: bytes) -> bool:
    """Whether the file is there and whole; one that was damaged since is written again."""
    try:
        return sha256(file.read_bytes()).digest() == digest
    except FileNotFoundError:
        return False


def _write(file: Path, data: bytes) -> None:
    """Writes beside the file, flushes, and renames."""
    with NamedTemporaryFile(dir=file.parent, prefix=".", delete=False) as temporary:
        try:
            temporary.write(data)
            temporary.flush()
            os.fsync(temporary.fileno())
            Path(temporary.name).replace(file)
        except BaseException:
            Path(temporary.name).unlink(missing_ok=True)
            raise


def _flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
