"""What models may call a server's tools. Pure; called when tools are listed and when they are put together.

Invariants: a label is what every provider takes as a tool's name; two tools never share
one; and the same names give the same labels, in whatever order they come, for they stand
in transcripts: **these rules never change**, or a replay would tell a model other names.

- A name that every provider takes is its own label.
- Else each character that is not a letter, a digit, "_" or "-" becomes "_", an "_" comes
  before a first character that is no letter, and a name that is too long is cut and
  ends with 8 digits of its hash.
- Where that makes two names equal, those that were changed end with their hash.
- Among all tools of an agent, a label that another server or the manifest itself uses
  too has the server's name and "_" before it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256

LABEL_CHARACTERS_MAX = 64
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_HASH_CHARACTERS = 8


def labels(names: Iterable[str]) -> dict[str, str]:
    """Name → label, of the names of one server."""
    known = list(dict.fromkeys(names))
    found = {name: _label(name) for name in known}
    count = Counter(found.values())
    return {
        name: label if label == name or count[label] == 1 else _hashed(label, name)
        for name, label in found.items()
    }


def told_names(servers: Mapping[str, Sequence[str]], taken: Collection[str]) -> dict[tuple[str, str], str]:
    """(server, label) → the name that models are told.

    `servers`: the labels of each server's tools. `taken`: names that the manifest gives.
    """
    count = Counter(label for found in servers.values() for label in found)
    shared = {label for label, times in count.items() if times > 1} | set(taken)
    used = set(taken) | {label for label in count if label not in shared}
    told = {}
    for server, found in servers.items():
        for label in found:
            name = label
            if label in shared:
                name = _label(f"{server}_{label}")
                if name in used:
                    name = _hashed(name, f"{server}\0{label}")
                used.add(name)
            told[server, label] = name
    return told


def _label(name: str) -> str:
    if _LABEL.fullmatch(name):
        return name
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if not re.match(r"[A-Za-z_]", plain):
        plain = "_" + plain
    if len(plain) <= LABEL_CHARACTERS_MAX and plain.strip("_-"):
        return plain
    return _hashed(plain, name)


def _hashed(label: str, name: str) -> str:
    digits = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARACTERS]
    return f"{label[: LABEL_CHARACTERS_MAX - _HASH_CHARACTERS - 1]}_{digits}"
