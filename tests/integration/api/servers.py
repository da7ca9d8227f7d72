"""API servers as processes, and a way to them that breaks."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

SECONDS_MAX = 30.0
TOKEN = "a-token-of-at-least-thirty-two-characters"


@dataclass
class Process:
    """`agentrun api` on a port of its own, which it keeps over its restarts."""

    dsn: str
    folder: Path
    port: int = 0
    _running: subprocess.Popen[str] | None = field(default=None, init=False)

    def start(self) -> None:
        """Returns when it listens."""
        token = self.folder / "token"
        token.write_text(TOKEN + "\n")
        log = self.folder / f"api-{time.monotonic_ns()}.log"
        with log.open("w") as out:
            self._running = subprocess.Popen(
                [sys.executable, "-m", "agentrun_api", "--store", self.dsn, "--port", str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, "AGENTRUN_API_TOKEN_FILE": str(token)},
            )
        began = time.monotonic()
        while not (found := re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text())):
            assert self._running.poll() is None, log.read_text()
            assert time.monotonic() - began < SECONDS_MAX, log.read_text()
            time.sleep(0.05)
        self.port = int(found.group(1))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._running is not None
        return self._running.pid

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Its exit code."""
        assert self._running is not None
        self._running.send_signal(how)
        code = self._running.wait(SECONDS_MAX)
        self._running = None
        return code

    def kill(self) -> None:
        """Whatever it does."""
        if self._running is not None:
            self._running.kill()
            self._running.wait(SECONDS_MAX)


class Breaking:
    """A way to several servers: each connection goes to the next one, and `cut` breaks them all."""

    def __init__(self, ports: list[int], random_: random.Random) -> None:
        self._ports = ports
        self._random = random_
        self._next = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.cuts = 0
        self._told = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Breaking]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut()
            await server.wait_closed()

    def cut(self) -> None:
        """Breaks what is open, in the middle of whatever it is in the middle of."""
        for writer in self._writers:
            writer.transport.abort()
        self.cuts += bool(self._writers)
        self._writers.clear()
        self._told.clear()

    async def told(self) -> None:
        """Something of a stream has come through since the last cut."""
        await self._told.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._next += 1
        try:
            to = await asyncio.open_connection("127.0.0.1", self._ports[self._next % len(self._ports)])
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, to[1]}
        await asyncio.gather(self._relay(reader, to[1]), self._relay(to[0], writer))
        self._writers -= {writer, to[1]}

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(self._random.randint(1, 4000)):
                writer.write(data)
                await writer.drain()
                if b"\nid: " in data:
                    self._told.set()
        writer.transport.abort() if reader.exception() else writer.close()
