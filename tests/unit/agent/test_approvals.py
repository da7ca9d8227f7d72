"""Calls that wait for a person: parked without cost, made once, as they were approved."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from agentrun.graph.executor import Executor
from agentrun.local.answering import calls_waiting
from agentrun.log.asks import APPROVAL, Waiting, answer_row, is_answered, waiting
from agentrun.log.memory import MemoryStore
from agentrun.log.store import InboxRow
from agentrun.proto import log_pb2
from agentrun.proto import transcript_pb2 as pb
from agentrun.spec.approval import ApprovalRule
from agentrun.tools.base import ServerTool
from tests.support.agents import AgentBench, Crash, agent, call, manifest, tool
from tests.support.tool_servers import FakeServer, ServerBench, entry

ALWAYS = {"policy": "Always"}
OVER_100 = {"policy": "When", "when": [{"argument": "amount", "operator": "Gt", "values": ["100"]}]}
DONE = {"text": "done"}


def pay(**more: Any) -> dict[str, Any]:
    return tool("pay", "unsafe", function="echo", **({"requireApproval": ALWAYS} | more))


def bench(*calls: dict[str, Any], tools: Sequence[Any] = (), **spec: Any) -> AgentBench:
    """A turn of these calls, then the answer."""
    return AgentBench(
        manifest([{"toolCalls": list(calls)}, DONE], list(tools) or [pay(), tool("echo")], **spec)
    )


def post(run: AgentBench, row: InboxRow) -> bool:
    async def main() -> bool:
        return await MemoryStore(run.database).post(run.run_id, row)

    return bool(run.loop.run(main()))


def asked(run: AgentBench) -> list[Waiting]:
    return waiting(run.history)


def shown(run: AgentBench) -> list[str | None]:
    """The arguments of what waits, as the command and the API list them."""

    async def main() -> list[str | None]:
        store = MemoryStore(run.database)
        info = await store.get_run(run.run_id)
        assert info is not None
        calls = await calls_waiting(store, info, run.history, inline)
        return [waits.arguments for waits in calls]

    async def inline(payload: log_pb2.Payload) -> bytes | None:
        return payload.inline

    found: list[str | None] = run.loop.run(main())
    return found


def answer(run: AgentBench, approve: bool = True, *, of: int = 0, **more: Any) -> str:
    """Answers one of the calls that nobody has answered; its id."""
    given = run.database.runs[run.run_id].inbox
    id_ = [waits.id for waits in asked(run) if waits.id not in given][of]
    assert post(run, answer_row(id_, approve=approve, by="ann", **more))
    return id_


async def until(executor: Executor, met: Callable[[], object]) -> None:
    """Waits for records until the condition holds."""
    while not met():
        await executor.log.past(executor.log.history.head)


def test_a_call_that_needs_approval_parks_the_run_at_no_cost() -> None:
    run = bench(call("pay", text="Bob"))
    outcome = run.resume()
    assert outcome.paused and outcome.reason == "ApprovalRequired"
    (waits,) = asked(run)
    assert waits.node_id == "call-1-0" and waits.id.startswith("call-1-0-")
    assert outcome.message == f'1 call waits for an answer: {waits.id} pay({{"text": "Bob"}})'
    assert run.starts("echo") == 0
    assert run.ids[-1] == "call-1-0!ask", "and no intent, and no result"
    ask = run.record("call-1-0!ask")
    assert ask.cost == log_pb2.Cost(), "waiting costs nothing"


def test_resumed_without_an_answer_it_parks_again_and_asks_nothing_twice() -> None:
    run = bench(call("pay", text="Bob"))
    first = run.resume()
    assert run.resume() == first
    assert run.ids.count("call-1-0!ask") == 1
    assert len(run.asked) == 1, "no turn is paid for again"


def test_an_approved_call_is_made_once_and_its_records_name_the_answer() -> None:
    run = bench(call("pay", text="Bob"))
    run.resume()
    id_ = answer(run, reason="fine")
    assert run.resume().reason == "Completed"
    assert run.starts("echo") == 1
    assert [record.id for record in run.records if id_ in record.consumed] == ["call-1-0!intent", "call-1-0"]
    told = run.result("call-1-0")
    assert (told.outcome, told.content) == (pb.TOOL_OUTCOME_OK, "echo: Bob")
    assert (told.answered.id, told.answered.answer.by) == (id_, "ann")
    assert told.answered.at_us > 0
    assert asked(run) == []
    run.check_transcripts()


def test_a_denied_call_is_not_made_and_the_model_is_told_why() -> None:
    run = bench(call("pay", text="Bob"))
    run.resume()
    id_ = answer(run, approve=False, reason="too much")
    assert run.resume().reason == "Completed"
    assert run.starts("echo") == 0
    told = run.result("call-1-0")
    assert told.outcome == pb.TOOL_OUTCOME_DENIED
    assert told.content == "Not run: a person has denied this call. The reason given: too much"
    assert list(run.record("call-1-0").consumed) == [id_]
    run.check_transcripts()


def test_changed_arguments_are_what_is_called_recorded_and_told() -> None:
    run = bench(call("pay", text="Bob"))
    run.resume()
    answer(run, arguments='{"text": "Alice"}')
    run.resume()
    assert [seen.value for seen in run.calls if seen.tool == "echo"] == ["Alice"]
    told = run.result("call-1-0")
    assert told.answered.answer.arguments == '{"text": "Alice"}'
    assert told.content == (
        'A person changed the arguments of this call before it was made, to: {"text": "Alice"}\n\necho: Alice'
    )
    said = [part for part in run.asked[-1].body["messages"] if part.get("tool_calls")]
    assert said[0]["tool_calls"][0]["function"]["arguments"] == '{"text": "Bob"}', "what the model said stays"
    run.check_transcripts()


def test_only_the_calls_that_the_rule_names_wait() -> None:
    tools = [
        tool(
            "numbers",
            "unsafe",
            requireApproval={
                "policy": "When",
                "when": [{"argument": "big", "operator": "Gt", "values": ["100"]}],
            },
        )
    ]
    calls = [{"name": "numbers", "arguments": {"id": k, "big": 99 + k}} for k in (1, 2)]
    run = bench(*calls, tools=tools)
    assert run.resume().reason == "ApprovalRequired"
    assert [waits.node_id for waits in asked(run)] == ["call-1-1"]
    assert run.starts("numbers") == 1 and "call-1-0" in run.history.done


def test_siblings_finish_first_and_what_waits_takes_no_place() -> None:
    calls = [call("pay", text="Bob"), *(call("echo", text=str(k), seconds=5.0) for k in range(3))]
    run = bench(*calls, concurrency=1)
    assert run.resume().reason == "ApprovalRequired"
    assert run.ids[-3:] == ["call-1-1", "call-1-2", "call-1-3"]
    assert run.starts("echo") == 3


def test_an_answer_is_taken_up_while_siblings_run() -> None:
    run = bench(call("pay", text="Bob"), call("echo", text="slow", seconds=60.0))
    taken: list[float] = []

    async def say(executor: Executor) -> None:
        store = MemoryStore(run.database)
        await asyncio.sleep(5)
        (waits,) = waiting(executor.log.history)
        await store.post(run.run_id, answer_row(waits.id, approve=True, by="ann"))
        assert run.drive is not None
        run.drive.hint(run.run_id)
        began = run.loop.time()
        await until(executor, lambda: "call-1-0" in executor.log.history.done)
        taken.append(run.loop.time() - began)

    assert run.resume(during=say).reason == "Completed", "one process, from start to end"
    assert taken[0] < 0.5


def test_a_hint_that_is_lost_is_made_up_for_by_the_slow_look() -> None:
    run = bench(call("pay", text="Bob"), call("echo", text="slow", seconds=60.0))

    async def say(executor: Executor) -> None:
        await asyncio.sleep(5)
        (waits,) = waiting(executor.log.history)
        await MemoryStore(run.database).post(run.run_id, answer_row(waits.id, approve=True, by="ann"))

    assert run.resume(during=say).reason == "Completed"
    assert len(run.database.runs[run.run_id].attempts) == 1


def test_an_answer_that_comes_with_the_end_of_the_last_sibling_is_not_slept_through() -> None:
    run = bench(call("pay", text="Bob"))

    async def say(executor: Executor) -> None:
        await until(executor, lambda: waiting(executor.log.history))
        (waits,) = waiting(executor.log.history)
        await MemoryStore(run.database).post(run.run_id, answer_row(waits.id, approve=True, by="ann"))

    assert run.resume(during=say).reason == "Completed"


def test_two_calls_are_answered_one_at_a_time() -> None:
    run = bench(call("pay", text="a"), call("pay", text="b"))
    assert run.resume().message.startswith("2 calls wait for an answer: call-1-0-")
    answer(run, of=1)
    assert run.resume().message.startswith("1 call waits for an answer: call-1-0-")
    assert [seen.value for seen in run.calls if seen.tool == "echo"] == ["b"]
    answer(run, approve=False)
    assert run.resume().reason == "Completed"
    assert [seen.value for seen in run.calls if seen.tool == "echo"] == ["b"]
    run.check_transcripts()


@pytest.mark.parametrize(
    "row",
    [
        InboxRow(id="", kind=APPROVAL, payload=b"\xff\xff not protobuf"),
        InboxRow(id="", kind=APPROVAL, payload=b""),
        InboxRow(id="", kind="message", payload=answer_row("x", approve=True, by="x").payload),
        InboxRow(id="", kind=APPROVAL, payload=log_pb2.Answer(decision=77).SerializeToString()),  # type: ignore[arg-type]
    ],
)
def test_a_row_that_cannot_be_read_approves_nothing(row: InboxRow) -> None:
    run = bench(call("pay", text="Bob"))
    run.resume()
    post(run, InboxRow(id=asked(run)[0].id, kind=row.kind, payload=row.payload))
    assert run.resume().reason == "Completed"
    assert run.starts("echo") == 0
    assert "the answer cannot be read" in run.result("call-1-0").content


def test_the_first_answer_stands() -> None:
    run = bench(call("pay", text="Bob"))
    run.resume()
    id_ = answer(run, approve=False)
    assert not post(run, answer_row(id_, approve=True, by="eve"))
    run.resume()
    assert run.result("call-1-0").outcome == pb.TOOL_OUTCOME_DENIED


def test_rows_for_calls_that_are_not_there_change_nothing() -> None:
    run = bench(call("pay", text="Bob"))
    for id_ in ("call-1-0", "call-9-9-00000000", "turn-2", ""):
        post_before_run(run, id_)
    assert run.resume().reason == "ApprovalRequired"
    assert run.starts("echo") == 0


def post_before_run(run: AgentBench, id_: str) -> None:
    if run.run_id not in run.database.runs:
        run.run(Crash(append=1))
    assert post(run, answer_row(id_, approve=True, by="ann"))


def test_an_answer_to_another_runs_same_call_is_no_answer() -> None:
    one, other = bench(call("pay", text="Bob")), bench(call("pay", text="Bob"))
    one.resume()
    other.resume()
    assert asked(one)[0].id != asked(other)[0].id
    post(one, answer_row(asked(other)[0].id, approve=True, by="ann"))
    assert one.resume().reason == "ApprovalRequired"


@pytest.mark.parametrize("append", range(1, 12))
@pytest.mark.parametrize("after", [False, True])
def test_an_approved_call_survives_a_crash_at_any_append(append: int, after: bool) -> None:
    run = bench(call("pay", text="Bob"))
    run.run(Crash(append=append, after=after))
    for _ in range(3):
        outcome = run.resume() if run.history.final is None else None
        if outcome is None or outcome.reason == "Completed":
            break
        answer(run)
        run.run(Crash(append=2, after=after))
    assert run.history.final is not None
    assert run.starts("echo") <= 1, "an unsafe call is made at most once for its approval"
    assert run.result("call-1-0").outcome in (pb.TOOL_OUTCOME_OK, pb.TOOL_OUTCOME_UNKNOWN)
    run.check_transcripts()


def test_a_tool_that_fails_on_its_way_is_tried_again_under_the_same_approval() -> None:
    tools = [tool("flaky", "idempotent", requireApproval=ALWAYS)]
    run = bench(call("flaky", times=2), tools=tools)
    run.resume()
    answer(run)
    assert run.resume().reason == "Completed"
    assert run.starts("flaky") == 3
    assert len({seen.key for seen in run.calls}) == 1


def test_arguments_that_do_not_parse_are_shown_to_a_person_all_the_same() -> None:
    tools = [tool("pay", "unsafe", function="echo", requireApproval=OVER_100)]
    run = AgentBench(manifest([{"toolCalls": [{"name": "pay", "arguments": '{"amount": '}]}, DONE], tools))
    assert run.resume().reason == "ApprovalRequired"
    assert asked(run)[0].detail == "11 bytes that are not JSON"


def test_what_looks_like_a_secret_is_not_shown() -> None:
    run = bench(call("pay", text="Bob", api_key="abc", login={"password": "x", "user": "u"}))
    message = run.resume().message
    assert '"api_key": "***"' in message and '"password": "***"' in message and '"user": "u"' in message


def test_the_message_is_bounded_however_many_calls_wait() -> None:
    run = bench(*(call("pay", text="x" * 5000) for _ in range(40)))
    assert len(run.resume().message.encode()) <= 1024
    assert len(asked(run)) == 40


def test_a_limit_that_is_reached_while_a_call_waits_parks_for_the_budget() -> None:
    run = bench(
        call("pay", text="Bob"), call("flaky", times=9), tools=[pay(), tool("flaky")], budget={"retries": 1}
    )
    assert run.resume().reason == "BudgetExceeded"
    assert len(asked(run)) == 1, "and what waits is known"


def test_a_cancel_while_a_call_waits_ends_the_run() -> None:
    run = bench(call("pay", text="Bob"), call("echo", text="slow", seconds=60.0))

    async def cancel(executor: Executor) -> None:
        await asyncio.sleep(5)
        executor.cancel(at_once=True)

    assert run.resume(during=cancel).reason == "Cancelled"
    assert asked(run) == []
    assert run.starts("echo") == 1


# --- sub-agents


def with_helper(inner_tools: Sequence[Any], *inner_calls: Any, **outer: Any) -> AgentBench:
    helper = agent([{"toolCalls": list(inner_calls)}, {"text": "helped"}], inner_tools)
    calls = [call("helper", task="a"), call("helper", task="b")]
    turns: list[dict[str, Any]] = [{"toolCalls": calls}, DONE]
    return AgentBench(manifest(turns, [{"agent": "helper", **outer}], agents={"helper": helper}))


def test_a_call_inside_a_sub_agent_parks_the_whole_run() -> None:
    run = with_helper([pay()], call("pay", text="Bob"))
    assert run.resume().reason == "ApprovalRequired"
    assert [waits.node_id for waits in asked(run)] == ["call-1-0/call-1-0", "call-1-1/call-1-0"]
    answer(run, of=1)
    assert run.resume().reason == "ApprovalRequired"
    assert run.result("call-1-1").content == "helped" and run.starts("echo") == 1
    answer(run, approve=False)
    assert run.resume().reason == "Completed"
    assert run.starts("echo") == 1
    run.check_transcripts()


def test_a_sub_agent_itself_may_need_approval() -> None:
    run = with_helper([tool("echo")], call("echo", text="x"), requireApproval=ALWAYS)
    assert run.resume().reason == "ApprovalRequired"
    assert [(waits.node_id, waits.what) for waits in asked(run)] == [
        ("call-1-0", "helper"),
        ("call-1-1", "helper"),
    ]
    answer(run)
    answer(run, approve=False)
    assert run.resume().reason == "Completed"
    assert run.starts("echo") == 1
    assert run.result("call-1-0").answered.answer.by == "ann"
    assert run.result("call-1-1").outcome == pb.TOOL_OUTCOME_DENIED
    run.check_transcripts()


def test_an_approved_sub_agent_whose_call_waits_starts_nothing_again() -> None:
    run = with_helper([pay()], call("pay", text="Bob"), requireApproval=ALWAYS)
    run.resume()
    for _ in range(2):
        answer(run)
    assert run.resume().reason == "ApprovalRequired"
    assert [waits.node_id for waits in asked(run)] == ["call-1-0/call-1-0", "call-1-1/call-1-0"]
    assert not is_answered(run.history, list(run.database.runs[run.run_id].inbox.values()))
    for _ in range(2):
        answer(run)
    assert run.resume().reason == "Completed"
    assert run.starts("echo") == 2
    assert run.result("call-1-0").answered.answer.by == "ann"
    run.check_transcripts()


# --- tool servers


def test_an_entry_for_a_server_has_one_rule_for_all_of_its_tools() -> None:
    rule = ApprovalRule.model_validate(OVER_100)
    tools = [ServerTool(name=name, parameters={"type": "object"}) for name in ("pay", "refund")]
    shop = entry("shop", tools, approval=rule)
    free = entry("free", [ServerTool(name="tip", parameters={"type": "object"})])
    calls = [call(name, amount=amount) for name in ("pay", "refund", "tip") for amount in (100, 101)]
    run = ServerBench(manifest([{"toolCalls": calls}, DONE], []), {"": [shop, free]})
    assert run.resume().reason == "ApprovalRequired"
    assert [(waits.node_id, waits.what) for waits in asked(run)] == [
        ("call-1-1", "pay"),
        ("call-1-3", "refund"),
    ]
    for _ in range(2):
        answer(run)
    assert run.resume().reason == "Completed"
    servers: list[FakeServer] = [shop.server, free.server]  # type: ignore[list-item]
    made = [(name, json.loads(given)["amount"]) for server in servers for name, given, _ in server.called]
    assert sorted(made) == [(name, n) for name in ("pay", "refund", "tip") for n in (100, 101)]
    run.check_transcripts()


# --- an unknown outcome


def unknown() -> AgentBench:
    """An unsafe call of which nobody knows whether it took effect."""
    run = bench(call("pay", text="Bob"), tools=[tool("pay", "unsafe", function="echo", onUnknown="Ask")])
    assert run.run(Crash(append=6)) is None
    assert run.starts("echo") == 1
    return run


def test_a_person_is_asked_whether_an_unknown_call_is_made_again() -> None:
    run = unknown()
    outcome = run.resume()
    assert outcome.paused and outcome.reason == "OutcomeUnknown"
    assert run.starts("echo") == 1
    (waits,) = asked(run)
    assert (waits.node_id, waits.reason) == ("call-1-0", "OutcomeUnknown")


def test_approved_it_is_made_again_under_the_same_key_out_of_the_budget() -> None:
    run = unknown()
    run.resume()
    id_ = answer(run)
    assert run.resume().reason == "Completed"
    assert run.starts("echo") == 2 and len({seen.key for seen in run.calls}) == 1
    assert run.result("call-1-0").outcome == pb.TOOL_OUTCOME_OK
    assert [record.id for record in run.records if id_ in record.consumed] == ["call-1-0#1"]
    assert run.history.totals.retries == 1


def test_denied_it_is_reported_as_unknown_with_what_the_person_said() -> None:
    run = unknown()
    run.resume()
    answer(run, approve=False, reason="it went through, number 77")
    assert run.resume().reason == "Completed"
    assert run.starts("echo") == 1
    told = run.result("call-1-0")
    assert told.outcome == pb.TOOL_OUTCOME_UNKNOWN
    assert told.content.endswith("it is not made again. The reason given: it went through, number 77")
    run.check_transcripts()


def test_it_is_never_made_again_with_other_arguments() -> None:
    run = unknown()
    run.resume()
    answer(run, arguments='{"text": "Alice"}')
    assert run.resume().reason == "Completed"
    assert run.starts("echo") == 1


def test_a_second_crash_is_a_second_question() -> None:
    run = unknown()
    run.resume()
    first = answer(run)
    assert run.run(Crash(append=4)) is None
    assert run.starts("echo") == 2
    assert run.resume().reason == "OutcomeUnknown"
    second = asked(run)[0].id
    assert second != first
    answer(run, approve=False)
    assert run.resume().reason == "Completed"
    assert run.starts("echo") == 2


def test_the_approval_of_the_call_stands_when_it_is_made_again() -> None:
    run = bench(call("pay", text="Bob"), tools=[pay(onUnknown="Ask")])
    run.resume()
    assert shown(run) == ['{"text": "Bob"}']
    answer(run, arguments='{"text": "Alice"}')
    assert shown(run) == ['{"text": "Bob"}'], "what was asked, and not what was answered"
    assert run.run(Crash(append=3)) is None
    assert run.starts("echo") == 1
    assert run.resume().reason == "OutcomeUnknown"
    (waits,) = asked(run)
    assert waits.detail == '{"text": "Alice"}', "the call as it was made, and not as the model wrote it"
    assert shown(run) == ['{"text": "Alice"}'], "also where the arguments are listed whole"
    answer(run)
    assert run.resume().reason == "Completed"
    assert [seen.value for seen in run.calls if seen.tool == "echo"] == ["Alice", "Alice"]


@pytest.mark.parametrize("policy", ["Ask", "Report"])
def test_of_a_call_with_changed_arguments_whose_outcome_is_unknown_the_model_is_told_both(
    policy: str,
) -> None:
    run = bench(call("pay", text="Bob"), tools=[pay(onUnknown=policy)])
    run.resume()
    approval = answer(run, arguments='{"text": "Alice"}')
    assert run.run(Crash(append=3)) is None
    if policy == "Ask":
        assert run.resume().reason == "OutcomeUnknown"
        denial = answer(run, approve=False, reason="it went through")
    assert run.resume().reason == "Completed"
    told = run.result("call-1-0")
    assert told.outcome == pb.TOOL_OUTCOME_UNKNOWN and run.starts("echo") == 1
    assert told.content.startswith("A person changed the arguments of this call before it was made, to: ")
    assert '{"text": "Alice"}' in told.content and "The outcome is unknown" in told.content
    assert told.answered.id == (denial if policy == "Ask" else approval)
    run.check_transcripts()
