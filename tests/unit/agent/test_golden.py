"""What a release wrote replays, folds to what it did, and goes on, in every later release."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agentrun.log.memory import MemoryStore
from agentrun.log.replay import FORMAT, OWN_KINDS, History
from agentrun.log.store import RunRow
from agentrun.proto import log_pb2 as pb
from tests.golden import make
from tests.golden.logs import FOLDER, Rows, fold_of, golden_logs, read_blobs, read_rows
from tests.support.agents import AgentBench

LOGS = golden_logs()
RUNS = [folder for folder in LOGS if (folder / "manifest.json").exists()]


def named(folder: Path) -> str:
    return str(folder.relative_to(FOLDER))


@pytest.mark.parametrize("folder", LOGS, ids=named)
def test_a_golden_log_folds_to_what_it_did(folder: Path) -> None:
    assert json.loads(json.dumps(fold_of(read_rows(folder)))) == json.loads(
        (folder / "fold.json").read_text()
    )


def test_the_logs_of_this_format_have_every_kind_and_every_field() -> None:
    folders = [folder for folder in LOGS if folder.parent.name == f"format-{FORMAT}"]
    records = [pb.NodeRecord.FromString(data) for folder in folders for _, data in read_rows(folder)]
    assert {record.kind for record in records} >= OWN_KINDS
    seen = {field.name for record in records for field, _ in record.ListFields()}
    assert seen == {field.name for field in pb.NodeRecord.DESCRIPTOR.fields}
    costs = {field.name for record in records for field, _ in record.cost.ListFields()}
    assert costs == {field.name for field in pb.Cost.DESCRIPTOR.fields}
    assert {record.output.WhichOneof("where") for record in records} >= {"inline", "blob"}


def going_on(folder: Path, rows: Rows) -> AgentBench:
    """The manifest's run, with these rows as its log."""
    bench = make.bench_of(folder.name, json.loads((folder / "manifest.json").read_text()))
    history = History(bench.run_id)
    history.fold_rows(rows)
    row = RunRow(run_id=bench.run_id, owner="test", name="t", definition=b"", digest="")
    bench.loop.run(MemoryStore(bench.database).create_run(row))
    run = bench.database.runs[bench.run_id]
    run.log = dict(rows)
    run.head = history.head
    run.blobs = read_blobs(folder)
    run.row = replace(run.row, epoch=history.epoch, attempt=history.attempt, ended=history.final is not None)
    return bench


@pytest.mark.parametrize("folder", RUNS, ids=named)
def test_a_golden_run_goes_on_from_each_of_its_records_to_the_same_answer(folder: Path) -> None:
    rows = read_rows(folder)
    answers = set()
    for count in range(len(rows)):
        bench = going_on(folder, rows[:count])
        for _ in range(3):
            final = bench.history.final
            if final is not None and final.final.outcome == pb.OUTCOME_FAILED:
                bench.reopen()
            if bench.resume().outcome == pb.OUTCOME_SUCCEEDED:
                break
        answers.add(bench.answer)
        assert bench.rows[:count] == rows[:count]
        assert bench.refusals == []
    assert answers == {"the answer"}


def test_what_is_there_is_never_written_anew(capsys: pytest.CaptureFixture[str]) -> None:
    before = {file: file.read_bytes() for file in FOLDER.glob(f"format-{FORMAT}/*/*")}
    assert make.main() == 1
    assert capsys.readouterr().err.count("is there already") == len(make.LOGS)
    assert before == {file: file.read_bytes() for file in FOLDER.glob(f"format-{FORMAT}/*/*")}
