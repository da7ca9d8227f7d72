"""A run of a thousand turns whose results are long stays inside its model's window and in little memory."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

from agentrun.log.replay import History
from tests.support.chaos import manifest, sound
from tests.support.commands import Commands, Ended, Running
from tests.support.stub_model import AnyReply, Request, StubModel, completion, error

WINDOW_TOKENS = 32_000
TURNS = 1000
RESULT_KIB = 100
MEMORY_MIB_MAX = 200
BYTES_PER_TOKEN = 3.5


class CountingModel:
    """Asks for one report after another, reads on in some, and refuses what its window does not hold.

    Which turn it is it finds in the conversation alone, as a model would. `seen`: of each conversation
    that it was sent, the hash; `faults`: those that were told in two ways; `tokens`: of each request."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.seen: dict[str, str] = {}
        self.tokens: list[int] = []
        self.faults: list[str] = []
        self.summaries = 0

    def __call__(self, request: Request) -> AnyReply:
        tokens = round(len(request.raw) / BYTES_PER_TOKEN)
        self.tokens.append(tokens)
        if tokens > WINDOW_TOKENS:
            return error(400, "too long", code="context_length_exceeded")
        messages = request.messages
        done = max((self._number(call) for m in messages for call in m.get("tool_calls", ())), default=0)
        digest = sha256(json.dumps(request.body, sort_keys=True).encode()).hexdigest()
        summary = "Write a summary" in str(messages[-1]["content"])
        key = f"{'summary' if summary else 'turn'} behind {done}"
        if self.seen.setdefault(key, digest) != digest:
            self.faults.append(key)
        if summary:
            self.summaries += 1
            return completion(f"Reports 1 to {done} were read; nothing is out of order. " * 20)
        if done == self.turns:
            return completion("done")
        if done % 10 == 9:
            name = re.findall(r'read_result\(result="(call-\d+-0)"', str(messages))[-1]
            return self._call("read_result", result=name, find="line 000007", length=done + 1)
        return self._call("report", number=done + 1, kib=RESULT_KIB)

    @staticmethod
    def _call(name: str, **arguments: Any) -> AnyReply:
        return completion(calls=[(name, json.dumps(arguments))])

    @staticmethod
    def _number(call: dict[str, Any]) -> int:
        arguments = json.loads(call["function"]["arguments"])
        return int(arguments.get("number") or arguments["length"])


def written(url: str, turns: int) -> dict[str, Any]:
    tool = {"entrypoint": "tests.support.chaos_tools:report"}
    found = manifest(
        model=url,
        tools=[{"name": "report", "python": tool, "effect": "read_only"}],
        prompt="Read the reports.",
        budget={"turns": 2 * turns, "retries": 20},
    )
    found["spec"]["agent"]["model"]["contextWindow"] = WINDOW_TOKENS
    found["spec"]["agent"]["context"] = {"resultBytes": 8192, "compaction": {}}
    return found


def peak_mib(running: Running) -> float:
    try:
        status = Path(f"/proc/{running.pid}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0


def run(commands: Commands, model: CountingModel, kills: Sequence[int] = ()) -> tuple[Ended, str, float]:
    """A run to its end, with a kill -9 at each of so many requests; its id, and the most memory it took."""
    run_id, peak = str(uuid4()), 0.0
    with StubModel(model) as stub:
        file = commands.write(written(stub.url, model.turns))
        for count in [*kills, 10**9]:
            running = commands.start("run", file, "--run-id", run_id, "--quiet")

            def there(running: Running = running, count: int = count) -> bool:
                nonlocal peak
                stub.requests.clear()  # a gigabyte, at the end
                peak = max(peak, peak_mib(running))
                return len(model.tokens) >= count or running.ended

            running.until(there, seconds=600)
            if not running.ended:
                running.kill()
    assert not model.faults
    return running.wait(), run_id, peak


def test_a_thousand_turns_in_a_window_of_32000_tokens(agentrun: Commands) -> None:
    model = CountingModel(TURNS)
    ended, run_id, peak = run(agentrun, model, [TURNS // 2])
    assert (ended.code, ended.out) == (0, "done\n"), ended.err
    assert max(model.tokens) <= WINDOW_TOKENS
    assert peak <= MEMORY_MIB_MAX
    history = sound(agentrun.dsn, run_id)
    assert history.totals.turns == TURNS + 1 + model.summaries and model.summaries
    took = [_seconds(history, first) for first in (100, TURNS - 100)]
    print(f"{peak:.0f} MiB, {max(model.tokens)} tokens, {model.summaries} summaries, {took} s for 100 turns")


def test_whoever_goes_on_sends_the_same_requests(agentrun: Commands) -> None:
    whole, killed = CountingModel(60), CountingModel(60)
    assert run(agentrun, whole)[0].out == "done\n"
    assert run(agentrun, killed, [9, 20, 31, 44])[0].out == "done\n"
    assert killed.seen == whole.seen


def _seconds(history: History, first: int) -> float:
    """That a hundred turns took, without the waits between two processes."""
    turns = [history.done[f"turn-{number}"] for number in range(first, first + 100)]
    return (turns[-1].finished_us - turns[0].started_us) / 1e6
