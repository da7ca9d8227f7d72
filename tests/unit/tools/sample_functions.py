"""Functions that the tests load as tools, good ones and bad ones."""

from __future__ import annotations

import asyncio
import datetime
import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pydantic

from agentrun.proto.log_pb2 import Payload
from agentrun.tools import ToolContext, ToolError, ToolOutput

not_callable = 3
calls: list[Any] = []
release = threading.Event()


class Unit(Enum):
    METRE = "m"
    FOOT = "ft"


class Address(pydantic.BaseModel):
    street: str
    zip: int = 0


def echo(
    id: int,  # noqa: A002
    n: int,
    f: float,
    neg: float,
    big: int,
    amount: Decimal,
    e: float = 0.0,
) -> dict[str, Any]:
    return {"id": id, "n": n, "f": f, "neg": neg, "big": big, "amount": amount, "e": e}


def raw(value: Any) -> Any:
    return value


def documented(
    city: str,
    days: Annotated[int, pydantic.Field(ge=1, le=7)] = 3,
    unit: Unit = Unit.METRE,
    *,
    schema: Literal["a", "b"] | None = None,
) -> str:
    """Tells the weather.

    Of one city, for some days.

    Args:
        city (str): The city's name,
            in any language.
        days: How many days.

    Returns:
        A text.
    """
    return f"{city} {days} {unit} {schema}"


def in_sphinx_style(city: str, days: int) -> str:
    """Tells the weather.

    :param city: The city's name,
        in any language.
    :param int days: How many days.
    :returns: A text.
    """
    return f"{city} {days}"


def in_numpy_style(city: str, days: int) -> str:
    """Tells the weather.

    Parameters
    ----------
    city : str
        The city's name,
        in any language.
    days
        How many days.

    Returns
    -------
    str
    """
    return f"{city} {days}"


def typed(when: datetime.date, where: Address, tags: set[str], ratio: float, maybe: int | None = None) -> Any:
    return [type(when).__name__, type(where).__name__, type(tags).__name__, type(ratio).__name__, maybe]


async def with_context(text: str, context: ToolContext) -> list[str]:
    return [text, context.run_id, context.node_id, context.idempotency_key]


def with_optional_context(context: ToolContext | None = None) -> str:
    return context.node_id if context else "none"


def positional(a: int = 1, b: int = 2, /, c: int = 3) -> list[int]:
    return [a, b, c]


def mutable_default(items: list[int] = []) -> list[int]:  # noqa: B006
    return items


def opaque_default(when: Any = object()) -> str:  # noqa: B008
    return type(when).__name__


def takes_anything(*args: Any, **kwargs: Any) -> None: ...


def takes_function(f: Callable[[], int]) -> None: ...


def takes_quoted(what: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037


def takes_unknown(x: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


def generator() -> Iterator[int]:
    yield 1


def raises(text: str = "no such order") -> None:
    raise ValueError(text)


def exits() -> None:
    sys.exit(3)


async def exits_in_the_loop() -> None:
    sys.exit(3)


def raises_tool_error() -> None:
    raise ToolError("Busy", "later", retryable=True, started=False, retry_after_seconds=2)


async def cancels_itself() -> None:
    raise asyncio.CancelledError


async def interrupts() -> None:
    raise KeyboardInterrupt


def interrupts_in_a_thread() -> None:
    raise KeyboardInterrupt


async def groups() -> None:
    inner = ExceptionGroup("some", [TypeError("two")])
    raise ExceptionGroup("unhandled errors in a TaskGroup", [ValueError("one"), inner])


def gives_a_file() -> ToolOutput:
    return ToolOutput(content="a file", attachments=[Payload(inline=b"\xff", media_type="image/png")])


def gives_an_output() -> ToolOutput:
    return ToolOutput(content="half\0done", is_error=True)


def gives_a_coroutine(text: str) -> Any:
    async def inner() -> str:
        return text

    return inner()


def gives(what: str) -> Any:
    deep: list[Any] = []
    for _ in range(200):
        deep = [deep]
    return {
        "nan": {"a": float("nan"), "b": float("inf")},
        "bytes": {"b": b"..."},
        "time": datetime.datetime(2026, 3, 1),
        "keys": {1: 1, "1": 2},
        "deep": deep,
        "generator": (k for k in range(3)),
        "inner iterator": {"all": map(str, [1])},
        "empty": "",
        "list": [],
        "none": None,
    }[what]


def blocks(seconds: float) -> str:
    calls.append("blocks")
    release.wait(seconds)
    return "late"


async def stubborn() -> str:
    """Does not heed its cancellation until it is let go."""
    while not release.is_set():
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue
    return "late"


async def cleans_up() -> str:
    try:
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.01)
        calls.append("cleaned up")
    return "late"


def sleeps(seconds: float) -> int:
    time.sleep(seconds)
    return threading.get_ident()


class Adder:
    """Adds."""

    def __init__(self, start: int) -> None:
        self.start = start

    async def __call__(self, n: int) -> int:
        return self.start + n

    @staticmethod
    def twice(n: int) -> int:
        return 2 * n


adder = Adder(10)
add_five = functools.partial(lambda a, b: a + b, 5)
