"""What is true of simulated runs, whatever their processes believe, and what must never be seen.

After every statement that the database executes and that may have changed a log,
`World.check` looks at the tables themselves. Calls to the outside are told to
`World.call`, which knows who may call then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from agentrun.graph.node import NodeRun
from agentrun.graph.outcome import Outcome
from agentrun.log.asks import ask_id
from agentrun.log.clock import Clock
from agentrun.log.errors import CorruptLog
from agentrun.log.replay import ATTEMPT, OWN_KINDS, REOPENED, TRY, History, decode
from agentrun.log.store import Hint, LogStore
from agentrun.log.tail import FRESH_SECONDS_MAX
from agentrun.proto import log_pb2 as pb
from tests.support.sim.loop import SimLoop

RESPONSE_TOKENS_MAX = 10
"""What one call of a simulated model costs at most."""


class Violation(AssertionError):
    """Something that must never happen was seen."""


class SimClock(Clock):
    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def monotonic(self) -> float:
        return self._loop.time()

    def wall_us(self) -> int:
        return int(self._loop.time() * 1e6)


@dataclass
class Faults:
    """Chances for one statement, and for one hint."""

    lost_request: float = 0.02
    lost_reply: float = 0.03
    late: float = 0.02
    slow: float = 0.05
    lost_hint: float = 0.1
    off: bool = False


@dataclass
class Watched:
    """One run: its log as it stands, and what was asked of it."""

    run_id: UUID
    history: History
    turns: frozenset[str] = frozenset()
    """Ids of the nodes that call a model."""
    calls_max: int = 0
    """Turns and retries, of the largest budget that anybody was ever told; 0: no limit."""
    tokens_max: int = 0
    claims: dict[int, float] = field(default_factory=dict)
    finals: dict[int, list[pb.Final]] = field(default_factory=dict)
    """By epoch: all that ever stood."""
    paid: set[tuple[str, int]] = field(default_factory=set)
    """Calls (node, number of the try) that a record answers for."""
    open_calls: dict[str, set[tuple[str, int]]] = field(default_factory=dict)
    """By process: the calls that it has made, recorded or not."""
    returned: list[tuple[str, int, Outcome]] = field(default_factory=list)
    crashes_drawn: int = 0
    cancel_asked: bool = False
    cut_off: list[tuple[str, str]] = field(default_factory=list)
    asking: frozenset[str] = frozenset()
    """Ids of the nodes whose one call a person has to approve."""
    approved: set[str] = field(default_factory=set)
    """Ids of the questions to which the first answer was yes."""
    executed: Counter[str] = field(default_factory=Counter)
    """How often the call of such a node was made, by whom ever."""
    told: set[str] = field(default_factory=set)
    """Processes that were told to give up what is in flight."""


@dataclass
class World:
    """See the module's docstring."""

    loop: SimLoop
    backing: LogStore
    faults: Faults = field(default_factory=Faults)
    strict: bool = True
    """False where a failover may lose what was acknowledged."""
    runs: dict[UUID, Watched] = field(default_factory=dict)
    stop_in_flight: dict[str, float] = field(default_factory=dict)
    at_final: dict[str, Callable[[UUID], None]] = field(default_factory=dict)
    """By process: what happens to it while its next final record is under way."""
    hints: list[tuple[str, Hint]] = field(default_factory=list)
    late_nodes: set[str] = field(default_factory=set)

    on_statement: Callable[[], None] = lambda: None
    violations: list[str] = field(default_factory=list)

    def refuse(self, what: str) -> None:
        """A violation is kept, whoever swallows the exception."""
        self.violations.append(what)
        raise Violation(what)

    async def check(self, run_id: UUID) -> None:
        """The tables: they replay, no two finals, nothing behind a final, `ended` says the same."""
        run = self.runs[run_id]
        if not self.strict:
            run.history = History(run_id)
        for seq, data in await self.backing.read_rows(run_id, after=run.history.head):
            self._fold(run, seq, decode(run_id, seq, data))
        info = await self.backing.get_run(run_id)
        stands = run.history.final is not None
        if info is not None and info.run.ended != stands:
            self.refuse(f"ended is {info.run.ended}, a final record stands: {stands}")
        used = run.history.totals.tokens
        if self.strict and run.tokens_max and used >= run.tokens_max + RESPONSE_TOKENS_MAX:
            self.refuse(f"{used} of {run.tokens_max} tokens are used: more than one response over")
        self.on_statement()

    def _fold(self, run: Watched, seq: int, record: pb.NodeRecord) -> None:
        ended = run.history.final is not None
        try:
            run.history.fold(seq, record)
        except CorruptLog as error:
            self.refuse(str(error))
        if ended and record.kind != REOPENED:
            self.refuse(f"record {seq} ({record.id}) stands behind a final record")
        if record.kind == ATTEMPT:
            run.claims.setdefault(record.epoch, self.loop.time())
            run.crashes_drawn += record.cost.retries
        if record.HasField("final"):
            found = run.finals.setdefault(record.epoch, [])
            if self.strict and found:
                self.refuse(f"record {seq} ({record.id}) is a second final record of epoch {record.epoch}")
            found.append(record.final)
        node_id = record.id.rpartition("#")[0] if record.kind == TRY else record.id
        if node_id in run.turns and (record.kind == TRY or record.kind not in OWN_KINDS):
            number = run.history.tries.get(node_id, 0) + (record.kind != TRY)
            run.paid.add((node_id, number))

    def call(self, run: Watched, process: str, epoch: int, node: NodeRun, parents: Sequence[str]) -> None:
        """A node's handler reaches out, now."""
        now = self.loop.time()
        history = run.history
        calls = run.open_calls.setdefault(process, set())
        calls.add((node.node_id, node.try_number))
        if not self.strict:
            return
        if node.node_id in run.asking:
            self._check_approval(run, process, node.node_id)
        newer = [at for other, at in run.claims.items() if other > epoch]
        if newer and now > min(newer) + FRESH_SECONDS_MAX + 1e-6:
            self.refuse(
                f"{process} (epoch {epoch}) calls {node.node_id}, {now - min(newer):.2f} s fenced off"
            )
        if newer:
            return
        if history.final is not None:
            self.refuse(f"{process} calls {node.node_id} behind a final record")
        if node.node_id in history.done:
            self.refuse(f"{process} calls {node.node_id}, which is recorded")
        for parent in parents:
            if parent and parent not in history.done:
                self.refuse(f"{node.node_id} is launched, its parent {parent} is not in the log")
        count = len(run.paid | calls)
        if run.calls_max and count > run.calls_max:
            self.refuse(
                f"{process} calls {node.node_id}: call {count}, turns and retries are {run.calls_max}"
            )

    def _check_approval(self, run: Watched, process: str, node_id: str) -> None:
        """Also a process that is fenced off makes such a call once, and with its approval."""
        run.executed[node_id] += 1
        if ask_id(run.run_id, node_id, "") not in run.approved:
            self.refuse(f"{process} calls {node_id} without an approval")
        if run.executed[node_id] > 1:
            self.refuse(f"{process} calls {node_id}, whose one call was made before")

    # --- how processes ended

    def ended(self, run: Watched, process: str, epoch: int, outcome: Outcome) -> None:
        """A process says how the run ended for it: what it says is what the log says."""
        run.returned.append((process, epoch, outcome))
        found = run.finals.get(epoch, [])
        if not self.strict:
            return
        if not outcome.paused and not any(same(outcome, final) for final in found):
            self.refuse(f"{process} ended with {outcome}, its epoch's final records are {found}")

    def judge(self, run: Watched) -> None:
        """At the end of the history, when all that was under way has landed."""
        for process, epoch, outcome in run.returned:
            if self.strict and outcome.paused and run.finals.get(epoch):
                self.refuse(f"{process} ended with {outcome}, and its epoch has a final record")
        for node_id in run.executed if self.strict else ():
            if node_id in run.history.done and ask_id(run.run_id, node_id, "") not in run.history.consumed:
                self.refuse(f"{node_id} was called, and no record names its approval")
        ended = {process for process, _, _ in run.returned}
        for process, node_id in run.cut_off:
            if process in ended and process not in run.told:
                self.refuse(f"{process} cut off {node_id}, and was not told to")

    # --- hints

    def hint(self, run_ids: Sequence[UUID]) -> None:
        """Tells all listeners, later, and not all of them."""
        rng = self.loop.rng
        for process, hint in self.hints:
            for run_id in run_ids:
                draw = 1.0 if self.faults.off else rng.random()
                if draw >= self.faults.lost_hint:
                    seconds = rng.random() * (0.01 if draw > 0.2 else 3.0)
                    self.loop.call_later(seconds, hint, run_id, context=self.loop.context_of(process))


def same(outcome: Outcome, final: pb.Final) -> bool:
    """The outcome is what the final record says."""
    return (outcome.outcome, outcome.reason) == (final.outcome, final.reason)
