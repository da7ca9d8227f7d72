"""A proxy before Postgres that does to connections what networks do.

    with Proxy(dsn) as proxy:
        store = PostgresStore.open(proxy.dsn)
        proxy.lose_reply("INSERT INTO run_log")   # executed, and nobody hears of it

It runs on a thread of its own, so that tests of any kind (and processes that they
start) can use it. It reads the protocol just enough to know statements by their text.
A fault is armed once and taken by the next statement that holds `matching`.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from enum import Enum, auto
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit


class Fault(Enum):
    LOSE_REQUEST = auto()
    """The statement never arrives; the connection breaks."""
    LOSE_REPLY = auto()
    """The statement is executed; the connection breaks in place of the reply."""
    HOLD = auto()
    """The statement arrives at `release`, whatever its sender does meanwhile; the reply is lost."""


class Proxy:
    """See the module's docstring. `statements` are the texts that were sent on, in order."""

    def __init__(self, target_dsn: str) -> None:
        parts = urlsplit(target_dsn)
        query = parse_qs(parts.query)
        self._host = query.get("host", [parts.hostname or ""])[0]
        self._port = int(query.get("port", [str(parts.port or 5432)])[0])
        self._user = parts.netloc.rpartition("@")[0] or "postgres"
        self._database = unquote(parts.path.lstrip("/"))
        self.statements: list[str] = []
        self._armed: tuple[Fault, str] | None = None
        self._refusing = False
        self._links: set[_Relay] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._ready = threading.Event()

    # --- what tests call, from any thread

    @property
    def dsn(self) -> str:
        return f"postgresql://{self._user}@127.0.0.1:{self._listens_on}/{self._database}?sslmode=disable"

    @property
    def connections(self) -> int:
        """How many are open now."""
        return len(self._links)

    def lose_request(self, matching: str = "") -> None:
        self._armed = (Fault.LOSE_REQUEST, matching)

    def lose_reply(self, matching: str = "") -> None:
        self._armed = (Fault.LOSE_REPLY, matching)

    def hold(self, matching: str = "") -> None:
        self._armed = (Fault.HOLD, matching)

    def fault_was_taken(self) -> bool:
        return self._armed is None

    def release(self) -> None:
        """Lets what is held go on its way."""
        self._call(lambda: self._released.set())

    def black_hole(self) -> None:
        """From now on nothing arrives anywhere, and nobody is told."""
        self._call(lambda: self._flows.clear())

    def heal(self) -> None:
        """Ends `black_hole` (what waited in it arrives late) and `refuse`."""
        self._refusing = False
        self._call(lambda: self._flows.set())

    def reset(self) -> None:
        """Breaks every connection that is open."""
        self._call(self._abort_all)

    def refuse(self) -> None:
        """Breaks every connection, the new ones at once."""
        self._refusing = True
        self.reset()

    # --- the thread

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _call(self, action: Callable[[], object]) -> None:
        """Runs `action` on the proxy's loop, and comes back when it is done."""
        done = threading.Event()

        def run() -> None:
            action()
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(10)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop, self._released, self._flows = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._flows.set()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._listens_on = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        self._abort_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _abort_all(self) -> None:
        for link in list(self._links):
            link.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        try:
            await self._flows.wait()
            if self._host.startswith("/"):
                path = f"{self._host}/.s.PGSQL.{self._port}"
                upstream = await asyncio.open_unix_connection(path)
            else:
                upstream = await asyncio.open_connection(self._host, self._port)
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
            return
        link = _Relay(self, (reader, writer), upstream)
        self._links.add(link)
        for pump in (link.requests(), link.replies()):
            task = self._loop.create_task(link.bounded(pump))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def take(self, statement: str) -> Fault | None:
        """The fault that is armed for this statement; it is disarmed."""
        self.statements.append(statement)
        if self._armed is None or self._armed[1] not in statement:
            return None
        fault, self._armed = self._armed[0], None
        if fault is Fault.HOLD:
            self._released.clear()
        return fault

    async def flows(self) -> None:
        await self._flows.wait()

    async def released(self) -> None:
        await self._released.wait()

    def forget(self, link: _Relay) -> None:
        self._links.discard(link)


Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Relay:
    """One client's connection and the one to the server behind it."""

    def __init__(self, proxy: Proxy, client: Stream, server: Stream) -> None:
        self._proxy = proxy
        self._client, self._server = client, server
        self._texts: dict[bytes, str] = {}
        self._mute = False
        """The replies are lost, and the connection breaks after them."""

    def abort(self) -> None:
        """Breaks both connections, the client's with a reset."""
        sock = self._client[1].get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._client[1].transport.abort()
        self._server[1].transport.abort()
        self._proxy.forget(self)

    async def bounded(self, pump: Coroutine[None, None, None]) -> None:
        """Runs a pump until either end is gone."""
        try:
            await pump
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.abort()

    async def requests(self) -> None:
        reader, writer = self._client[0], self._server[1]
        size = await reader.readexactly(4)
        writer.write(size + await reader.readexactly(int.from_bytes(size) - 4))
        statement = ""
        while True:
            kind, message = await _message(reader)
            await self._proxy.flows()
            body = message[5:]
            if kind == b"P":
                name, text, _ = body.split(b"\0", 2)
                self._texts[name] = text.decode()
            elif kind == b"B":
                statement = self._texts.get(body.split(b"\0", 2)[1], "")
            elif kind == b"Q":
                statement = body[:-1].decode()
            if kind in (b"E", b"Q"):
                fault = self._proxy.take(statement)
                if fault is Fault.LOSE_REQUEST:
                    return
                self._mute = self._mute or fault is not None
                if fault is Fault.HOLD:
                    message += await self._held(kind)
            writer.write(message)
            await writer.drain()

    async def _held(self, kind: bytes) -> bytes:
        """The rest of the request that is held, once it is released."""
        rest = b""
        while kind not in (b"S", b"Q"):
            kind, message = await _message(self._client[0])
            rest += message
        await self._proxy.released()
        return rest

    async def replies(self) -> None:
        reader, writer = self._server[0], self._client[1]
        while True:
            kind, message = await _message(reader)
            await self._proxy.flows()
            if self._mute:
                if kind == b"Z":
                    return
                continue
            writer.write(message)
            await writer.drain()


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The next message: its kind, and all of its bytes."""
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(int.from_bytes(head[1:]) - 4)
