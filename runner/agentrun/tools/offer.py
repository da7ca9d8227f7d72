"""What an agent is offered of a server's tools, in the form that is recorded. Pure.

Called by the agent layer when a server has listed its tools. Invariant: whatever a
server says, the record holds tools that every provider takes; what cannot be one is
left out and named in a warning.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence

from agentrun.log.text import safe_text
from agentrun.proto import transcript_pb2 as pb
from agentrun.tools.base import Effect, ServerTool
from agentrun.tools.inputschema import Unusable, normalised
from agentrun.tools.names import labels
from agentrun.tools.results import cut_text

TOOLS_MAX = 512
"""Of one server; the rest is left out."""

NAME_CHARACTERS_MAX = 512
DESCRIPTION_BYTES_MAX = 8 * 1024
WARNINGS_MAX = 100

_EFFECTS = {
    Effect.READ_ONLY: pb.TOOL_EFFECT_READ_ONLY,
    Effect.IDEMPOTENT: pb.TOOL_EFFECT_IDEMPOTENT,
    Effect.UNSAFE: pb.TOOL_EFFECT_UNSAFE,
}
_NAMED = {number: effect for effect, number in _EFFECTS.items()}


def offer(
    listed: Sequence[ServerTool],
    *,
    allow: Collection[str] = (),
    deny: Collection[str] = (),
    effect: Effect | None = None,
) -> pb.ToolList:
    """The tools that an agent gets. `allow`: only these, empty: all; `deny`: not these; names as
    the server says them. `effect`: of all of them, None: as the server says."""
    found = pb.ToolList()
    chosen = list(_chosen(listed, allow, deny, found))
    names = labels(tool.name for tool in chosen)
    for tool in chosen:
        try:
            parameters, left_out = normalised(tool.parameters)
        except Unusable as error:
            _warn(found, f"tool {_shown(tool.name)} is left out: {error}")
            continue
        for what in left_out:
            _warn(found, f"tool {_shown(tool.name)}: {what} is left out, for providers refuse its name")
        found.tools.add(
            name=tool.name,
            label=names[tool.name],
            description=cut_text(tool.description, bytes_max=DESCRIPTION_BYTES_MAX),
            parameters_json=safe_text(json.dumps(parameters, ensure_ascii=False, separators=(",", ":"))),
            effect=_EFFECTS[effect or tool.effect],
            binding=tool.binding,
        )
    return found


def effect_of(tool: pb.ListedTool) -> Effect:
    """As recorded."""
    return _NAMED.get(tool.effect, Effect.UNSAFE)


def _chosen(
    listed: Sequence[ServerTool], allow: Collection[str], deny: Collection[str], found: pb.ToolList
) -> Iterator[ServerTool]:
    seen: set[str] = set()
    count = 0
    for tool in listed:
        if tool.name in seen:
            _warn(found, f"tool {_shown(tool.name)} is left out: the server lists it twice")
            continue
        seen.add(tool.name)
        if (allow and tool.name not in allow) or tool.name in deny:
            continue
        if not tool.name or len(tool.name) > NAME_CHARACTERS_MAX or safe_text(tool.name) != tool.name:
            _warn(found, f"tool {_shown(tool.name)} is left out: this is no name")
            continue
        count += 1
        if count > TOOLS_MAX:
            _warn(found, f"tool {_shown(tool.name)} is left out: at most {TOOLS_MAX} are taken")
            continue
        yield tool
    for name in allow:
        if name not in seen:
            _warn(found, f"tool {_shown(name)} is allowed, and the server does not have it")


def _warn(found: pb.ToolList, text: str) -> None:
    if len(found.warnings) < WARNINGS_MAX:
        found.warnings.append(safe_text(text))


def _shown(name: str) -> str:
    return repr(safe_text(name[:100]))
