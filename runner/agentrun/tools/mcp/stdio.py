"""A server that is a process of ours: a JSON-RPC message a line, over its pipes.

Used by `link`, below the SDK's session. Invariants:

- The process has a minimal environment: what this process knows (its database, secrets
  of the run) it does not.
- A line that is no message is left aside with a warning; the end of its output fails
  what is waited for at once.
- Whatever the process does with its signals and pipes, `close` takes at most
  CLOSE_SECONDS_MAX, and leaves nothing of its process group alive.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, cast

import anyio
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, JSONRPCRequest, jsonrpc_message_adapter

from agentrun.log.masks import Masks
from agentrun.log.text import safe_bytes
from agentrun.tools.arguments import write_exact
from agentrun.tools.mcp.exchange import Exchange, Fault, current, params_of

LINE_BYTES_MAX = 64 * 1024 * 1024
ERROR_LINES_MAX = 20
"""Of what the server last wrote to its standard error."""
ERROR_CHARACTERS_MAX = 300
ODD_LINES_TOLD_MAX = 5
CLOSE_SECONDS_MAX = 0.8
"""A third of it for the server to see that its input ends, a third for SIGTERM, then SIGKILL."""
NOTE_SECONDS_MAX = 2.0

INHERITED = (
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "PYTHONDONTWRITEBYTECODE",
)  # fmt: skip
"""What a server's process is told of ours; all else is its entry's to say."""

logger = logging.getLogger(__name__)


def environment(own: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """Of a server's process. Programs beside the runner's own Python are found, behind all others."""
    found = {name: inherited[name] for name in INHERITED if name in inherited}
    found["PATH"] = os.pathsep.join(filter(None, [found.get("PATH"), str(Path(sys.executable).parent)]))
    return found | dict(own)


@asynccontextmanager
async def dispatcher(
    command: Sequence[str], env: Mapping[str, str], masks: Masks
) -> AsyncIterator[StdioDispatcher]:
    """Starts the process, and ends it. Raises Fault where it cannot be started."""
    process = await _start(command, env)
    pipes = _Pipes(process, masks)
    made = StdioDispatcher(pipes)
    try:
        yield made
    finally:
        await pipes.close()


async def _start(command: Sequence[str], env: Mapping[str, str]) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment(env, os.environ),
            limit=LINE_BYTES_MAX,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        message = f"{command[0]} cannot be started: {why}"
        raise Fault("CannotStart", message, retryable=False, started=False, refused=True) from error


class _Pipes:
    """The process and the tasks that read it. `incoming` and `outgoing` are the SDK's ends."""

    def __init__(self, process: asyncio.subprocess.Process, masks: Masks) -> None:
        self.over = False
        self._process = process
        self._masks = masks
        self._errors: deque[str] = deque(maxlen=ERROR_LINES_MAX)
        self._odd = 0
        self._push, self.incoming = anyio.create_memory_object_stream[SessionMessage | Exception](16)
        self.outgoing, self._pull = anyio.create_memory_object_stream[SessionMessage](0)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(part()) for part in (self._read, self._write, self._read_errors)]

    @property
    def ending(self) -> str:
        """Why the process is gone, as far as that can be told."""
        code = self._process.returncode
        how = "its output ended" if code is None else f"it ended with exit code {code}"
        said = f": {self._errors[-1][:ERROR_CHARACTERS_MAX]}" if self._errors else ""
        return how + said

    async def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            while True:
                line = await _line(self._process.stdout)
                if line is None:
                    break
                if line.strip():
                    await self._heard(line)
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        finally:
            self.over = True
            with suppress(TimeoutError):  # what it said last, and its exit code, tell why
                async with asyncio.timeout(0.2):
                    await self._process.wait()
            self._push.close()

    async def _heard(self, line: bytes) -> None:
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            self._odd += 1
            if self._odd <= ODD_LINES_TOLD_MAX:
                shown = self._masks.text(safe_bytes(line[:400]).strip())[:200]
                logger.warning("an MCP server wrote a line that is no message; it is left aside: %s", shown)
            return
        await self._push.send(SessionMessage(message))

    async def _write(self) -> None:
        assert self._process.stdin is not None
        try:
            async for item in self._pull:
                self._process.stdin.write(_encoded(item) + b"\n")
                await self._process.stdin.drain()
        except OSError:
            self._push.close()  # what is waited for will not come
        finally:
            self._pull.close()

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with suppress(OSError):
            while (line := await _line(self._process.stderr)) is not None:
                said = self._masks.text(safe_bytes(line[:4000]).strip())
                if said:
                    self._errors.append(said)
                    logger.debug("an MCP server says: %s", said)

    async def close(self) -> None:
        """Ends the process: by the end of its input, by SIGTERM, by SIGKILL."""
        self.over = True
        try:
            if self._process.stdin is not None:
                self._process.stdin.close()
            for number in (signal.SIGTERM, signal.SIGKILL):
                with suppress(TimeoutError):
                    async with asyncio.timeout(CLOSE_SECONDS_MAX / 3):
                        await self._process.wait()
                        break
                _signal(self._process.pid, number)
        finally:
            _signal(self._process.pid, signal.SIGKILL)  # whatever it has started, too
            for task in self._tasks:
                task.cancel()
            for stream in (self._push, self.incoming, self.outgoing, self._pull):
                stream.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS_MAX / 3):
                    await asyncio.gather(*self._tasks, return_exceptions=True)
                    await self._process.wait()
            transport = getattr(self._process, "_transport", None)
            if transport is not None:  # a pipe that a grandchild holds open would keep it
                transport.close()


class StdioDispatcher(JSONRPCDispatcher[Any]):
    """The SDK's own, over a process's pipes; tells whether a request was handed to the process."""

    session_id = None

    def __init__(self, pipes: _Pipes) -> None:
        super().__init__(pipes.incoming, pipes.outgoing)
        self._pipes = pipes
        self._numbers = count(1)
        self._later: set[asyncio.Task[None]] = set()

    @property
    def lost(self) -> bool:
        """The process is gone, or will not answer any more."""
        return self._pipes.over

    async def send_raw_request(
        self, method: str, params: Any, opts: Any = None, *, _related_request_id: Any = None
    ) -> dict[str, Any]:
        """One request, one result."""
        exchange, request_id = current(), next(self._numbers)
        self._require_running(exchange)
        await exchange.gate.open()  # may take as long as the store is away
        self._require_running(exchange)

        async def progressed(_progress: float, _total: float | None, _message: str | None) -> None:
            exchange.progressed()

        own: Any = {"request_id": request_id, "cancel_on_abandon": False, "on_progress": progressed}
        options = cast(CallOptions, {**(opts or {}), **own})
        try:
            result = await super().send_raw_request(method, params_of(params, exchange, request_id), options)
        except asyncio.CancelledError:
            if method != "initialize":
                self._abandon(request_id)
            raise
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                raise self._gone(started=True) from error
            raise
        exchange.raw = result
        return result

    def _require_running(self, exchange: Exchange) -> None:
        if self._pipes.over:
            exchange.gate.passed = False
            raise self._gone(started=False)

    def _gone(self, *, started: bool) -> Fault:
        return Fault("ConnectionLost", self._pipes.ending, retryable=True, started=started)

    def _abandon(self, request_id: int) -> None:
        """Tells the server that nobody waits any more; whoever gave up does not wait for that."""

        async def tell() -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(NOTE_SECONDS_MAX):
                    await self.notify("notifications/cancelled", {"requestId": request_id})

        task = asyncio.get_running_loop().create_task(tell())
        self._later.add(task)
        task.add_done_callback(self._later.discard)


def _encoded(item: SessionMessage) -> bytes:
    message = item.message
    if isinstance(message, JSONRPCRequest):  # its arguments hold numbers as the model wrote them
        request = {"jsonrpc": "2.0", "id": message.id, "method": message.method}
        return write_exact({**request, **({"params": message.params} if message.params else {})}).encode()
    return json.dumps(message.model_dump(by_alias=True, mode="json", exclude_unset=True)).encode()


async def _line(stream: asyncio.StreamReader) -> bytes | None:
    """The next line, without one that is too long; None at the end."""
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # longer than the limit: what was read of it is gone
            continue
        return line or None


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
