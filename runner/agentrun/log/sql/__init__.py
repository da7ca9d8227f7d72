"""Named SQL statements, read once from the `.sql` files beside this module.

Who calls: `postgres` and `links`. A statement is all that stands between its `-- name:` line and
the next one; a name occurs once over all files.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def load() -> dict[str, str]:
    """All statements by name."""
    statements: dict[str, str] = {}
    for file in sorted(resources.files(__name__).iterdir(), key=lambda entry: entry.name):
        if not file.name.endswith(".sql"):
            continue
        _, *parts = _NAME.split(file.read_text(encoding="utf-8"))
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            if name in statements:
                raise ValueError(f"two statements are named {name}")
            statements[name] = text.strip()
    return statements
