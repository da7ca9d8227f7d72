"""Tools that are Python functions of the runner's image: `package.module:function`.

Built by `build_tool` at an agent's set-up, called by the agent loop. Invariants:

- The deadline is on the result. A coroutine that is past it is cancelled and, if it
  does not heed that, left behind; a thread cannot be stopped and is left behind at
  once. Neither keeps a drain waiting, and a thread not even the interpreter's exit.
- Only `ToolError`, and what `before_send` raises, leaves `call`; whatever else the
  function raises is an output that tells the model so.
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import importlib
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from agentrun.models.base import ToolDefinition
from agentrun.tools.arguments import parse_arguments
from agentrun.tools.base import Effect, OnUnknown, ToolCall, ToolError, ToolOutput
from agentrun.tools.context import ToolContext
from agentrun.tools.errors import ArgumentsError, ResultError, ToolSetupError
from agentrun.tools.results import cut_text, render_error, render_result

if TYPE_CHECKING:
    from agentrun.spec.approval import ApprovalRule
    from agentrun.tools.schema import FunctionSchema

BeforeSend = Callable[[], Awaitable[None]]

CLEANUP_SECONDS = 1.0
"""How long a cancelled coroutine may take to clean up before it is left behind."""

_left_behind: set[asyncio.Task[Any]] = set()


class PythonTool:
    """One function as a tool; arguments are checked against its signature."""

    def __init__(
        self,
        *,
        name: str,
        function: Callable[..., Any],
        schema: FunctionSchema,
        description: str = "",
        parameters: Mapping[str, Any] | None = None,
        effect: Effect = Effect.UNSAFE,
        on_unknown: OnUnknown = OnUnknown.REPORT,
        timeout_seconds: float = 60.0,
        approval: ApprovalRule | None = None,
    ) -> None:
        self._function = function
        self._schema = schema
        self._in_loop = _is_async(function)
        self.definition = ToolDefinition(
            name=name,
            description=description or schema.description,
            parameters=parameters or schema.parameters,
        )
        self.effect = effect
        self.on_unknown = on_unknown
        self.approval = approval
        self.timeout_seconds = timeout_seconds

    @classmethod
    def load(cls, entrypoint: str, **settings: Any) -> PythonTool:
        """The tool at `package.module:function`; `settings` as of the class. Raises ToolSetupError."""
        from agentrun.tools.schema import read_function  # imports pydantic

        function = load_entrypoint(entrypoint)
        return cls(function=function, schema=read_function(function, entrypoint), **settings)

    async def call(self, call: ToolCall) -> ToolOutput:
        """One call of the function, after `before_send`."""
        context = ToolContext(run_id=call.run_id, node_id=call.node_id, idempotency_key=call.idempotency_key)
        try:
            bound = self._schema.bind(parse_arguments(call.arguments), context)
        except ArgumentsError as error:
            return ToolOutput(content=cut_text(f"Invalid arguments: {error}"), is_error=True)
        except Exception as error:  # a validator of the tool's own
            return ToolOutput(content=render_error(error), is_error=True)
        await call.before_send()  # may take as long as the store is away, which is no time of the tool's
        value, raised = await self._outcome(bound, call.before_send)
        if isinstance(raised, ToolError):
            raise raised
        if raised is not None:
            return ToolOutput(content=render_error(raised), is_error=True)
        return _output(value)

    async def close(self) -> None:
        """Nothing is held open."""

    async def _outcome(
        self, bound: inspect.BoundArguments, before_send: BeforeSend
    ) -> tuple[Any, BaseException | None]:
        # A task of its own: one that swallows its cancellation must not hold up this one.
        run = _guarded(before_send, lambda: self._run(bound))
        task = asyncio.create_task(run, name=f"tool {self.definition.name}")
        try:
            done, _ = await asyncio.wait({task}, timeout=self.timeout_seconds)
            if done:
                return task.result()
        finally:
            if not task.done():
                await _leave(task)
        raise ToolError(
            "Timeout",
            f"timed out after {self.timeout_seconds:g} s, may have taken effect",
            retryable=True,
        )

    async def _run(self, bound: inspect.BoundArguments) -> Any:
        if self._in_loop:
            value = self._function(*bound.args, **bound.kwargs)
        else:
            value = await _in_thread(lambda: self._function(*bound.args, **bound.kwargs))
        return await value if inspect.isawaitable(value) else value


def load_entrypoint(entrypoint: str) -> Callable[..., Any]:
    """The function that `package.module:function` names; raises ToolSetupError."""
    module_name, colon, path = entrypoint.partition(":")
    if not colon or not module_name or not path:
        raise ToolSetupError(f"{entrypoint!r} is not of the form package.module:function")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise ToolSetupError(f"{entrypoint}: there is no module {error.name}") from error
        raise ToolSetupError(
            f"{entrypoint}: {module_name} needs a module that is missing: {error}"
        ) from error
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise ToolSetupError(f"{entrypoint}: importing {module_name} failed: {text}") from error
    for part in path.split("."):
        owner = found
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise ToolSetupError(f"{entrypoint}: {module_name} has no {path}") from error
        if inspect.isclass(owner) and inspect.isfunction(vars(owner).get(part)):
            raise ToolSetupError(f"{entrypoint}: {path} is a method, which needs an object; name a function")
    if inspect.isclass(found):
        raise ToolSetupError(f"{entrypoint}: {path} is a class; name a function")
    if not callable(found):
        raise ToolSetupError(f"{entrypoint}: {path} is a {type(found).__name__}, which cannot be called")
    if inspect.isgeneratorfunction(found) or inspect.isasyncgenfunction(found):
        raise ToolSetupError(f"{entrypoint}: {path} is a generator; a tool gives one result")
    return found  # type: ignore[no-any-return]


def _output(value: Any) -> ToolOutput:
    if isinstance(value, ToolOutput):
        return dataclasses.replace(value, content=cut_text(value.content))
    try:
        return ToolOutput(content=render_result(value))
    except ResultError as error:
        text = f"The call was made, but its result cannot be shown: {error}"
        return ToolOutput(content=cut_text(text), is_error=True)


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  (an object whose __call__ is async)
    )


async def _guarded(
    before_send: BeforeSend, run: Callable[[], Coroutine[Any, Any, Any]]
) -> tuple[Any, BaseException | None]:
    # The loop came round since the caller asked, and the process may have slept meanwhile. What
    # this raises is no outcome of the tool.
    await before_send()
    try:
        return await run(), None
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return None, error  # something inside the tool was cancelled, not the call
    except (Exception, SystemExit) as error:  # sys.exit() in a tool must not end the run's process
        return None, error
    except KeyboardInterrupt:  # as little: a person's Ctrl-C is a signal, and never raised in here
        return None, RuntimeError("KeyboardInterrupt in a tool")


async def _leave(task: asyncio.Task[Any]) -> None:
    task.cancel()
    _left_behind.add(task)  # the loop itself holds tasks weakly
    task.add_done_callback(_forget)
    await asyncio.wait({task}, timeout=CLEANUP_SECONDS)


def _forget(task: asyncio.Task[Any]) -> None:
    _left_behind.discard(task)
    if not task.cancelled():
        task.exception()  # seen: nobody waits for it any more


async def _in_thread(function: Callable[[], Any]) -> Any:
    """Runs `function` in a daemon thread, which is abandoned when this is cancelled.

    Not the loop's executor: that one is joined when the interpreter exits, so one
    blocking tool would hold up a drain until the kubelet's SIGKILL.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(outcome: tuple[Any, BaseException | None]) -> None:
        if not future.done():
            future.set_result(outcome)

    def work() -> None:
        outcome: tuple[Any, BaseException | None]
        try:
            outcome = context.run(function), None
        except BaseException as error:
            outcome = None, error
        try:
            loop.call_soon_threadsafe(deliver, outcome)
        except RuntimeError:
            pass  # the loop is closed: the call was abandoned long ago

    threading.Thread(target=work, name="tool", daemon=True).start()
    value, error = await future
    if error is None:
        return value
    if isinstance(error, Exception | SystemExit):
        raise error
    raise RuntimeError(f"{type(error).__name__} in a tool's thread") from error
