"""Reads the result of `tools/call` as it came. Pure; called by `server`.

A model is told text, and of everything else a line that says what it is; the bytes are
attached to the call's record. Invariant: no base64 reaches the model or the record's
text, and a block of odd form is described and never loses the others.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any

from agentrun.log.masks import Masks
from agentrun.log.text import safe_text
from agentrun.proto import log_pb2
from agentrun.tools.base import ToolOutput
from agentrun.tools.results import cut_text

ATTACHMENT_BYTES_MAX = 16 * 1024 * 1024
ATTACHMENTS_BYTES_MAX = 32 * 1024 * 1024
"""Of one result; what goes beyond is described and not kept."""
ATTACHMENTS_MAX = 64
TEXT_BYTES_MAX = 256 * 1024
"""A resource's text that is longer is attached."""
NAME_CHARACTERS_MAX = 200

_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}")


def output_of(result: Mapping[str, Any], masks: Masks) -> ToolOutput:
    """What the model is told of a result, and what is kept beside it."""
    reader = _Reader(masks)
    blocks = result.get("content")
    for block in blocks if isinstance(blocks, list) else ():
        reader.read(block)
    structured = result.get("structuredContent")
    if structured is not None and not reader.says(structured):
        reader.texts.append(_json(structured))
    if result.get("resultType") == "input_required":
        reader.texts.append("The server asks for more input, which an agent here cannot give.")
        return ToolOutput(content=reader.text, is_error=True, attachments=reader.attachments)
    return ToolOutput(
        content=reader.text, is_error=result.get("isError") is True, attachments=reader.attachments
    )


class _Reader:
    def __init__(self, masks: Masks) -> None:
        self.texts: list[str] = []
        self.attachments: list[log_pb2.Payload] = []
        self._masks = masks
        self._bytes = 0

    @property
    def text(self) -> str:
        return cut_text(self._masks.text("\n".join(self.texts)))

    def says(self, structured: Any) -> bool:
        """The text is the structured result already, as the protocol asks servers to repeat it."""
        if len(self.texts) != 1:
            return False
        said: Any = self.texts[0]
        if isinstance(structured, Mapping) and list(structured.values()) == [said]:
            return True  # {"content": text}, as file servers have it: a file is not to be told twice
        try:
            said = json.loads(said)
        except (ValueError, RecursionError):
            pass
        return bool(structured in (said, {"result": said}))

    def read(self, block: Any) -> None:
        """One block of the content."""
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind == "text" and isinstance(block.get("text"), str):
            self.texts.append(block["text"])
        elif kind in ("image", "audio"):
            self._bytes_block(kind, block.get("data"), block.get("mimeType"), "")
        elif kind == "resource" and isinstance(block.get("resource"), Mapping):
            self._resource(block["resource"])
        elif kind == "resource_link":
            self._link(block)
        else:
            self.texts.append(f"[a block of the unknown type {str(kind)[:60]!r}]")

    def _resource(self, resource: Mapping[str, Any]) -> None:
        uri, text = _short(resource.get("uri")), resource.get("text")
        if isinstance(text, str):
            data = safe_text(text).encode()
            if len(data) <= TEXT_BYTES_MAX:
                self.texts.append(f"[resource {uri}]\n{text}")
            else:
                self._keep("resource", data, resource.get("mimeType") or "text/plain", uri)
        else:
            self._bytes_block("resource", resource.get("blob"), resource.get("mimeType"), uri)

    def _link(self, block: Mapping[str, Any]) -> None:
        about = [_short(block.get(key)) for key in ("uri", "name", "description", "mimeType")]
        self.texts.append(f"[link to a resource: {', '.join(filter(None, about))}]")

    def _bytes_block(self, kind: str, text: Any, media_type: Any, uri: str) -> None:
        try:
            if not isinstance(text, str):
                raise ValueError
            data = base64.b64decode(re.sub(r"\s", "", text), validate=True)
        except (ValueError, binascii.Error):
            self.texts.append(f"[{kind}{uri and ' '}{uri}: its data cannot be read]")
            return
        self._keep(kind, data, media_type, uri)

    def _keep(self, kind: str, data: bytes, media_type: Any, uri: str) -> None:
        known = _MEDIA_TYPE.match(media_type) if isinstance(media_type, str) else None
        told = known.group() if known else "application/octet-stream"
        what = f"{kind}{uri and ' '}{uri}: {told}, {len(data)} bytes"
        full = self._bytes + len(data) > ATTACHMENTS_BYTES_MAX or len(self.attachments) >= ATTACHMENTS_MAX
        if full or len(data) > ATTACHMENT_BYTES_MAX:
            self.texts.append(f"[{what}, too large to be kept]")
            return
        self._bytes += len(data)
        self.attachments.append(log_pb2.Payload(inline=data, media_type=told))
        self.texts.append(f"[{what}]")


def _short(value: Any) -> str:
    return " ".join(value.split())[:NAME_CHARACTERS_MAX] if isinstance(value, str) else ""


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return "[a structured result that cannot be shown]"
