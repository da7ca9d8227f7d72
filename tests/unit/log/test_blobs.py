"""Blobs are stored durably under run and hash, and read back checked."""

from __future__ import annotations

import asyncio
import time
from hashlib import sha256
from pathlib import Path
from uuid import UUID

import pytest

from agentrun.log.blobs import BlobStore, FolderBlobs, TableBlobs
from agentrun.log.errors import BlobCorrupt, BlobMissing, BlobTooLarge
from agentrun.log.memory import Database, MemoryStore
from agentrun.proto import log_pb2 as pb
from tests.contract.scenarios import new_run

DATA = b"\x00\xff" * 10_000


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(Database(time.time))


@pytest.fixture(params=["table", "folder"])
def blobs(request: pytest.FixtureRequest, store: MemoryStore, tmp_path: Path) -> BlobStore:
    return TableBlobs(store) if request.param == "table" else FolderBlobs(tmp_path / "blobs")


@pytest.fixture
def run_id(store: MemoryStore) -> UUID:
    return asyncio.run(new_run(store))


def put(blobs: BlobStore, run_id: UUID, data: bytes = DATA) -> pb.BlobRef:
    return asyncio.run(blobs.put(run_id, data, "text/plain"))


def get(blobs: BlobStore, run_id: UUID, ref: pb.BlobRef) -> bytes:
    return asyncio.run(blobs.get(run_id, ref))


@pytest.mark.parametrize("data", [b"", DATA])
def test_what_was_put_is_got(blobs: BlobStore, run_id: UUID, data: bytes) -> None:
    ref = put(blobs, run_id, data)
    assert (ref.size_bytes, ref.sha256) == (len(data), sha256(data).digest())
    assert get(blobs, run_id, ref) == data


def test_the_same_bytes_again_give_the_same_reference(blobs: BlobStore, run_id: UUID) -> None:
    assert put(blobs, run_id) == put(blobs, run_id)


def test_urls_name_the_store_and_the_hash(store: MemoryStore, run_id: UUID, tmp_path: Path) -> None:
    digest = sha256(DATA).hexdigest()
    assert put(TableBlobs(store), run_id).url == f"table:{digest}"
    assert put(FolderBlobs(tmp_path), run_id).url == f"folder:{run_id}/{digest}"


def test_a_blob_of_another_run_is_missing(blobs: BlobStore, run_id: UUID, store: MemoryStore) -> None:
    ref = put(blobs, run_id)
    other = asyncio.run(new_run(store))
    with pytest.raises(BlobMissing, match=f"run {other}: there is no blob {ref.sha256.hex()}"):
        get(blobs, other, ref)


def test_a_wrong_size_is_corrupt(blobs: BlobStore, run_id: UUID) -> None:
    ref = put(blobs, run_id)
    ref.size_bytes += 1
    with pytest.raises(BlobCorrupt, match=f"run {run_id}: the blob {ref.sha256.hex()}"):
        get(blobs, run_id, ref)


def test_changed_bytes_in_the_table_are_corrupt(store: MemoryStore, run_id: UUID) -> None:
    blobs = TableBlobs(store)
    ref = put(blobs, run_id)
    asyncio.run(store.put_blob(run_id, ref.sha256, DATA[:-1] + b"!"))
    with pytest.raises(BlobCorrupt):
        get(blobs, run_id, ref)


def test_changed_bytes_in_a_file_are_corrupt_and_putting_again_mends_them(
    tmp_path: Path, run_id: UUID
) -> None:
    blobs = FolderBlobs(tmp_path)
    ref = put(blobs, run_id)
    (tmp_path / str(run_id) / ref.sha256.hex()).write_bytes(DATA[:-1] + b"!")
    with pytest.raises(BlobCorrupt):
        get(blobs, run_id, ref)
    put(blobs, run_id)
    assert get(blobs, run_id, ref) == DATA


def test_the_table_takes_no_more_than_its_bound(store: MemoryStore, run_id: UUID) -> None:
    blobs = TableBlobs(store, bytes_max=100)
    put(blobs, run_id, b"x" * 100)
    with pytest.raises(BlobTooLarge, match="101 bytes"):
        put(blobs, run_id, b"x" * 101)


@pytest.mark.parametrize(
    "url", ["folder:../../etc/passwd", "folder:/etc/passwd", "folder:", "folder:x/../../y"]
)
def test_a_path_in_a_url_leads_nowhere_else(tmp_path: Path, run_id: UUID, url: str) -> None:
    blobs = FolderBlobs(tmp_path / "blobs")
    ref = put(blobs, run_id)
    ref.url = url
    assert get(blobs, run_id, ref) == DATA, "run and hash say where it is"


@pytest.mark.parametrize("digest", [b"", b"../x", b"\0" * 31])
def test_what_is_no_hash_names_no_blob(blobs: BlobStore, run_id: UUID, digest: bytes) -> None:
    ref = put(blobs, run_id)
    ref.sha256 = digest
    with pytest.raises(BlobMissing):
        get(blobs, run_id, ref)


def test_a_blob_of_another_kind_of_store_is_missing_by_name(blobs: BlobStore, run_id: UUID) -> None:
    ref = put(blobs, run_id)
    ref.url = "s3://bucket/key"
    with pytest.raises(BlobMissing, match="s3://bucket/key"):
        get(blobs, run_id, ref)


def test_a_write_that_fails_leaves_nothing_behind(
    tmp_path: Path, run_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    blobs = FolderBlobs(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("agentrun.log.blobs.os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            put(blobs, run_id)
    assert list((tmp_path / str(run_id)).iterdir()) == []
    assert get(blobs, run_id, put(blobs, run_id)) == DATA


def test_bytes_and_name_are_on_the_disk_before_put_returns(
    tmp_path: Path, run_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []

    def note(handle: int) -> None:
        flushed.append(str(Path(f"/proc/self/fd/{handle}").readlink()))

    monkeypatch.setattr("agentrun.log.blobs.os.fsync", note)
    put(FolderBlobs(tmp_path / "new"), run_id)
    folder = tmp_path / "new" / str(run_id)
    assert flushed[0].startswith(f"{folder}/.")
    assert flushed[1:] == [str(folder), str(folder.parent), str(tmp_path)]


def test_many_puts_of_the_same_bytes_at_once_give_one_file(tmp_path: Path, run_id: UUID) -> None:
    blobs = FolderBlobs(tmp_path)

    async def all_at_once() -> None:
        await asyncio.gather(*(blobs.put(run_id, DATA, "text/plain") for _ in range(20)))

    asyncio.run(all_at_once())
    assert [file.name for file in (tmp_path / str(run_id)).iterdir()] == [sha256(DATA).hexdigest()]
