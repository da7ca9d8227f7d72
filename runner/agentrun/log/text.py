"""Makes text safe once, where it enters.

A protobuf string and Postgres hold neither lone surrogates nor broken UTF-8, and
Postgres no NUL. Providers and tools send all of them.
"""

from __future__ import annotations

REPLACEMENT = "\ufffd"


def safe_text(text: str) -> str:
    """`text` with NUL and lone surrogates replaced by U+FFFD; the same object when there are none.

    A surrogate pair that was split in two (JSON escapes do that) is joined again.
    """
    if text.isascii():
        return text.replace("\0", REPLACEMENT) if "\0" in text else text
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\0", REPLACEMENT) if "\0" in text else text


def safe_bytes(data: bytes) -> str:
    """`data` as text: UTF-8, with what is broken in it replaced."""
    return safe_text(data.decode("utf-8", "replace"))
