"""Answers that come in pieces: one assembler a dialect.

An assembler puts the events of a stream together to the body that the provider would
have sent in one piece; from there on `answer` and the dialects read it like any other,
so that a stream and a whole body cannot be understood differently. `reader` feeds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from agentrun.models.base import Delta

__all__ = ["Assembler", "new_assembler"]


class Assembler(Protocol):
    """One stream. Events come parsed, with their text, for what must stay as it was written."""

    whole: bool
    """The provider's end marker has come: what follows may still add usage, and nothing else is missing."""
    begun: bool
    """There was an event of the answer's."""

    def feed(self, text: str, event: Mapping[str, Any]) -> Iterable[Delta]:
        """Takes one event; what of it can be shown."""

    def done(self) -> Iterable[Delta]:
        """The event `[DONE]`."""

    def body(self) -> str:
        """JSON of the answer so far."""


def new_assembler(provider: str) -> Assembler:
    """For one answer of a provider."""
    return _ASSEMBLERS[provider]()


def _table() -> Mapping[str, Callable[[], Assembler]]:
    from agentrun.models.streams import anthropic, chat, google, responses

    return MappingProxyType(
        {
            "openai": chat.ChatStream,
            "openai-responses": responses.ResponsesStream,
            "anthropic": anthropic.AnthropicStream,
            "google": google.GoogleStream,
        }
    )


_ASSEMBLERS = _table()
