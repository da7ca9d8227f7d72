"""What can go wrong with a tool apart from a call's `ToolError` (which is in base).

Raised by this package; `ToolSetupError` reaches whoever builds an agent (exit code
2 of a runner), the two others never leave the package: a tool turns them into an
output with `is_error`, which the model can act on.
"""

from __future__ import annotations


class ToolSetupError(Exception):
    """A tool that cannot be built as its manifest says. The message is one line."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class ArgumentsError(ValueError):
    """Arguments of a call that cannot be used; the text says what would be right."""


class ResultError(ValueError):
    """A result that cannot be shown as text (it contains itself, or is nested too deep)."""
