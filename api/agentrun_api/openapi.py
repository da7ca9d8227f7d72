"""Writes the OpenAPI document, or checks that the one in the repository is of these routes.

Who calls: `make openapi` and `make check`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from agentrun_api.app import create_app
from agentrun_api.events import END, RECORD
from agentrun_api.problems import MEDIA_TYPE

FILE = Path(__file__).resolve().parents[2] / "docs" / "openapi.json"
EVENTS = "text/event-stream"
EVENT = {
    "type": "object",
    "description": "One server-sent event; docs/api.md tells the kinds.",
    "required": ["event", "data"],
    "properties": {
        "event": {"enum": [RECORD, END]},
        "id": {"type": "string", "description": "The record's seq; only records have one."},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}


def document() -> dict[str, Any]:
    """The document of this build."""
    app = create_app()
    found = app.openapi()
    found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, operations in found["paths"].items():
        for operation in operations.values():
            _mend(path, operation)
    # FastAPI's own shape of an error, which is never sent: ours are problem details.
    for name in ("HTTPValidationError", "ValidationError"):
        found["components"]["schemas"].pop(name, None)
    return found


def _mend(path: str, operation: dict[str, Any]) -> None:
    """Who may call it, and the shape of its errors."""
    if path.startswith("/v1/"):
        operation["security"] = [{"token": []}]
    for status, answer in operation["responses"].items():
        if EVENTS in answer.get("content", {}):
            answer["content"] = {EVENTS: {"schema": EVENT}}
        if status >= "400" and path.startswith("/v1/"):
            schema = {"$ref": "#/components/schemas/ProblemDetails"}
            answer["content"] = {MEDIA_TYPE: {"schema": schema}}


def text() -> str:
    """As it stands in the file."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


def main(argv: list[str]) -> int:
    """The exit code."""
    if "--check" in argv:
        if not FILE.exists() or FILE.read_text() != text():
            print("docs/openapi.json: not that of the routes any more; run `make openapi`")
            return 1
        return 0
    FILE.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
