"""The lines that `kubectl logs` shows: an event's name and its fields, as text or JSON.

Who calls: `main` and, through `logging`, every library. What holds: a line is one
line whatever is in it, and written at once; no line holds a secret that `hide` was
told of; a log that nobody takes any more never stops a run.
"""

from __future__ import annotations

import json
import logging
import os
import re
import traceback
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from agentrun.log.masks import Masks
from agentrun.pod.settings import LEVELS, LogSettings

VALUE_CHARACTERS_MAX = 2000
TRACE_CHARACTERS_MAX = 8000
SECRET_CHARACTERS_MIN = 4
"""Shorter values are not looked for: they stand in every other word."""

_PLAIN = re.compile(r"[^\s\"'=\\]+")


class Output:
    """Writes lines to a file descriptor. `context`: fields of every JSON line."""

    def __init__(self, settings: LogSettings, *, descriptor: int = 1) -> None:
        self.context: dict[str, Any] = {}
        self._json = settings.json
        self._rank = LEVELS.index(settings.level)
        self._descriptor = descriptor
        self._masks = Masks(characters_min=SECRET_CHARACTERS_MIN)

    def hide(self, values: Iterable[str]) -> None:
        """These are secrets from now on."""
        self._masks.add(values)

    def clean(self, text: str) -> str:
        """Without secrets."""
        return self._masks.text(text)

    def write(self, event: str, level: str = "info", **fields: Any) -> None:
        """One line. Fields that are None or "" are left out."""
        if LEVELS.index(level) < self._rank:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        shown = {name: self._value(name, value) for name, value in fields.items() if value not in (None, "")}
        if self._json:
            line = json.dumps({"time": now, "level": level, "event": event, **self.context, **shown})
        else:
            told = "".join(f" {name}={_plain(value)}" for name, value in shown.items())
            line = f"{now} {level.upper():<7} {event}{told}"
        try:
            os.write(self._descriptor, line.encode("utf-8", "replace") + b"\n")
        except OSError:
            pass

    def _value(self, name: str, value: Any) -> Any:
        if isinstance(value, bool | int | float):
            return value
        text = self.clean(str(value))
        if name == "trace":  # its end says what happened
            return text[-TRACE_CHARACTERS_MAX:]
        return text if len(text) <= VALUE_CHARACTERS_MAX else text[: VALUE_CHARACTERS_MAX - 1] + "…"


def _plain(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


class LibraryHandler(logging.Handler):
    """What libraries log, as lines of ours."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        """Never raises: a log line must not end a run."""
        try:
            message = record.getMessage()
            trace = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
        except Exception:
            message, trace = str(record.msg), ""
        level = record.levelname.lower()
        self._output.write(
            "library",
            level if level in LEVELS else "error",
            logger=record.name,
            message=message,
            trace=trace,
        )


def take_over_logging(output: Output, settings: LogSettings) -> None:
    """Libraries' warnings become lines of ours; what else they say only at the level debug."""
    logging.captureWarnings(True)
    logging.basicConfig(
        handlers=[LibraryHandler(output)],
        level=logging.DEBUG if settings.level == "debug" else logging.WARNING,
        force=True,
    )
