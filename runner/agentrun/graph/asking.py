"""Asks people, and knows what they have answered.

Who calls: the executor, for nodes that ask and when the inbox may have news. What holds:
a question is in the log before its answer is looked for, so that whoever shows what
waits shows what is asked; an answer is taken from the store and from nowhere else; a
node that has an answer and waits for something else (another question, a graph below
it) has recorded its use, so that no process is started for it again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from agentrun.graph.types import Parked, Question
from agentrun.log.asks import Waiting, ask_id, ask_record_id
from agentrun.log.final import bounded
from agentrun.log.replay import ASK
from agentrun.log.runlog import RunLog
from agentrun.log.store import InboxRow
from agentrun.proto import log_pb2 as pb


class Asking:
    """See the module's docstring. `append` is the executor's."""

    def __init__(self, log: RunLog, append: Callable[[pb.NodeRecord], Awaitable[None]]) -> None:
        self._log = log
        self._append = append
        self._answers: dict[str, InboxRow] = {}

    async def read(self) -> Iterable[str]:
        """Reads the inbox; the ids of all answers in it."""
        for row in await self._log.inbox():
            self._answers.setdefault(row.id, row)
        return self._answers.keys()

    async def answer(self, node_id: str, question: Question, used: Sequence[str] = ()) -> InboxRow:
        """The answer to a question of the node's, which is in the log from then on; else raises
        Parked. `used`: ids of the answers that the same try has had before."""
        id_ = ask_id(self._log.run_id, node_id, question.key)
        record = self._record(node_id, question, id_)
        record.consumed.extend(used)
        if not self._log.knows(record.id):
            await self._append(record)
        if id_ not in self._answers:
            await self.read()
        row = self._answers.get(id_)
        if row is None:
            ask = record.ask
            raise Parked(
                Waiting(
                    id=id_,
                    node_id=node_id,
                    reason=ask.reason,
                    what=ask.subject,
                    detail=ask.detail,
                    since_us=record.finished_us,
                )
            )
        return row

    def _record(self, node_id: str, question: Question, id_: str) -> pb.NodeRecord:
        now = self._log.now_us()
        return pb.NodeRecord(
            id=ask_record_id(node_id, question.key),
            parents=[node_id],
            kind=ASK,
            ask=pb.Ask(
                id=id_,
                reason=bounded(question.reason),
                subject=bounded(question.what),
                detail=bounded(question.detail),
            ),
            started_us=now,
            finished_us=now,
        )
