"""Nodes that wait for a person: what they hold up, and what lets them go on."""

from __future__ import annotations

import asyncio
from typing import Any

from agentrun.graph.executor import Executor
from agentrun.graph.types import NodeContext, NodeError, NodeKind, NodeResult, Question, Spawned
from agentrun.log.asks import answer_row, is_answered, read_answer, waiting
from agentrun.log.memory import MemoryStore
from agentrun.proto import log_pb2 as pb
from tests.support.agents import Bench, Crash


async def start(node: NodeContext) -> NodeResult:
    return NodeResult(spawned=[Spawned(kind="asks", name="one"), Spawned(kind="works", name="two")])


async def asks(node: NodeContext) -> NodeResult:
    row = await node.ask(Question(reason="Curious", what="the weather"))
    return NodeResult(output=read_answer(row).reason.encode())


async def works(node: NodeContext) -> NodeResult:
    await asyncio.sleep(1)
    return NodeResult(output=b"done")


KINDS: dict[str, Any] = {"start": start, "asks": asks, "works": works}


def say(bench: Bench, text: str, of: int = 0) -> str:
    id_ = waiting(bench.history)[of].id

    async def main() -> None:
        row = answer_row(id_, approve=True, by="ann", reason=text)
        assert await MemoryStore(bench.database).post(bench.run_id, row)

    bench.loop.run(main())
    return id_


def goes_on(bench: Bench) -> bool:
    """Whoever starts runs that wait would start it now."""
    return is_answered(bench.history, list(bench.database.runs[bench.run_id].inbox.values()))


def test_the_reason_is_the_askers_and_siblings_are_recorded_first() -> None:
    bench = Bench(KINDS)
    outcome = bench.resume()
    assert outcome.paused and outcome.reason == "Curious" and "the weather" in outcome.message
    assert bench.ids == ["start", "one!ask", "two"]
    id_ = say(bench, "sunny")
    assert bench.resume().reason == "Completed"
    assert bench.history.done["one"].output.inline == b"sunny"
    assert list(bench.record("one").consumed) == [id_]


def test_a_node_asks_several_questions_one_after_the_other() -> None:
    async def twice(node: NodeContext) -> NodeResult:
        first = await node.ask(Question(reason="Curious", what="one", key="1"))
        second = await node.ask(Question(reason="Curious", what="two", key="2"))
        said = [read_answer(row).reason for row in (first, second)]
        return NodeResult(output=" ".join(said).encode())

    bench = Bench({"start": twice})
    for text in ("a", "b"):
        assert bench.resume().reason == "Curious"
        assert len(waiting(bench.history)) == 1
        assert not goes_on(bench), "what was answered before starts nothing again"
        say(bench, text)
        assert goes_on(bench)
    assert bench.resume().reason == "Completed"
    assert bench.history.done["start"].output.inline == b"a b"
    assert len(bench.record("start").consumed) == 2


def test_an_answer_above_a_graph_that_waits_starts_nothing_again() -> None:
    async def outer(node: NodeContext) -> NodeResult:
        await node.ask(Question(reason="Curious", what="above"))
        return NodeResult(output=await node.subgraph(Spawned(kind="start", name="in")))

    bench = Bench({**KINDS, "outer": outer}, Spawned(kind="outer", name="out"))
    assert bench.resume().reason == "Curious"
    say(bench, "above")
    assert bench.resume().reason == "Curious"
    assert [waits.node_id for waits in waiting(bench.history)] == ["out/one"]
    assert not goes_on(bench)
    say(bench, "below")
    assert goes_on(bench)
    assert bench.resume().reason == "Completed"


def test_a_retry_that_waits_is_waited_for_before_the_run_is_parked() -> None:
    async def flaky(node: NodeContext) -> NodeResult:
        if node.try_number < 3:
            raise NodeError("Busy", "later", retryable=True, retry_after_seconds=500)
        return NodeResult()

    bench = Bench({**KINDS, "works": flaky})
    began = bench.loop.time()
    assert bench.resume().reason == "Curious"
    assert bench.loop.time() - began >= 1000 and "two" in bench.history.done


def test_a_sibling_that_fails_for_good_ends_the_run_at_once() -> None:
    async def broken(node: NodeContext) -> NodeResult:
        await asyncio.sleep(1)
        raise NodeError("Broken", "for good", retryable=False)

    bench = Bench({**KINDS, "works": broken})
    outcome = bench.resume()
    assert (outcome.outcome, outcome.reason) == (pb.OUTCOME_FAILED, "Broken")
    assert waiting(bench.history) == []


def test_a_failure_in_a_graph_within_is_told_though_a_sibling_waits() -> None:
    async def outer(node: NodeContext) -> NodeResult:
        try:
            await node.subgraph(Spawned(kind="start", name="in"))
        except NodeError as error:
            return NodeResult(output=error.reason.encode())
        return NodeResult()

    async def broken(node: NodeContext) -> NodeResult:
        await asyncio.sleep(1)
        raise NodeError("Broken", "for good", retryable=False)

    bench = Bench({**KINDS, "works": broken, "outer": outer}, Spawned(kind="outer", name="out"))
    assert bench.resume().reason == "Completed"
    assert bench.history.done["out"].output.inline == b"Broken"
    assert waiting(bench.history) == [], "its question went with the graph"


def test_a_graph_that_has_no_time_left_takes_its_questions_with_it() -> None:
    async def outer(node: NodeContext) -> NodeResult:
        await node.subgraph(Spawned(kind="start", name="in"))
        return NodeResult()

    kinds = {**KINDS, "outer": NodeKind(name="outer", run=outer, timeout_seconds=0.5)}
    bench = Bench(kinds, Spawned(kind="outer", name="out"), budget={"retries": 2})
    assert bench.resume().reason == "BudgetExceeded"


def test_a_pause_and_a_cancel_come_before_what_waits() -> None:
    async def pause(executor: Executor) -> None:
        await executor.log.past(2)
        executor.pause("Suspended")

    bench = Bench(KINDS)
    assert bench.resume(during=pause).reason == "Suspended"

    async def cancel(executor: Executor) -> None:
        executor.cancel("enough")

    assert bench.resume(during=cancel).reason == "Cancelled"


def test_a_question_outlives_the_process_that_asked_it() -> None:
    for append in range(1, 6):
        for after in (False, True):
            bench = Bench(KINDS)
            bench.run(Crash(append=append, after=after))
            if not waiting(bench.history):
                bench.resume()
            say(bench, "sunny")
            assert bench.resume().reason == "Completed"
            assert bench.ids.count("one!ask") == 1


def test_a_handler_that_swallows_exceptions_does_not_get_round_the_question() -> None:
    async def greedy(node: NodeContext) -> NodeResult:
        try:
            await node.ask(Question(reason="Curious", what="x"))
        except NodeError:
            return NodeResult(output=b"never mind")
        return NodeResult(output=b"asked")

    bench = Bench({"start": greedy})
    assert bench.resume().reason == "Curious"
