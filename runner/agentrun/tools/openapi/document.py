"""Reads an OpenAPI document (3.0 or 3.1): its operations, with all references followed. Pure.

Called by `server` once a document. Invariants: nothing is fetched, so a reference to
another document is an operation that is left out; what is odd in one operation costs that
operation alone, and says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

METHODS = ("get", "head", "put", "post", "delete", "patch")
"""The others (options, trace, connect) do nothing that an agent could want."""

REFERENCES_MAX = 32
"""One behind the other."""


class BadDocument(ValueError):
    """It is no document that tools can be made of. One line."""


class BadOperation(ValueError):
    """An operation that cannot be a tool; the text says why, and follows "is left out: "."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation as the document has it. `parameters` and `body` with references followed."""

    name: str
    method: str
    path: str
    description: str
    parameters: list[Mapping[str, Any]]
    body: Mapping[str, Any] | None


class Document:
    """Raises BadDocument for what is no OpenAPI document of a known version."""

    def __init__(self, value: Any) -> None:
        if not isinstance(value, Mapping):
            raise BadDocument("it is no JSON object")
        if "swagger" in value:
            raise BadDocument(f"it is Swagger {str(value['swagger'])[:20]}; OpenAPI 3.0 or 3.1 is needed")
        version = str(value.get("openapi", ""))
        if not version.startswith(("3.0", "3.1")):
            raise BadDocument(f"its field openapi is {version[:20]!r}; 3.0.x or 3.1.x is needed")
        if not isinstance(value.get("paths", {}), Mapping):
            raise BadDocument("its field paths is no JSON object")
        self.root = value
        self.is_30 = version.startswith("3.0")

    @property
    def server(self) -> str:
        """The first server's address, with its variables' defaults; "" for none."""
        servers = self.root.get("servers")
        first = servers[0] if isinstance(servers, list) and servers else None
        if not isinstance(first, Mapping) or not isinstance(first.get("url"), str):
            return ""
        url: str = first["url"]
        variables = first.get("variables")
        for name, variable in variables.items() if isinstance(variables, Mapping) else ():
            if isinstance(variable, Mapping):
                url = url.replace(f"{{{name}}}", str(variable.get("default", "")))
        return url

    def target(self, ref: str) -> Any:
        """What a reference names; BadOperation where that is not in this document."""
        if not ref.startswith("#"):
            raise BadOperation(f"$ref {ref[:80]!r} names another document, which is not fetched")
        found: Any = self.root
        for part in ref[1:].split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and key in found:
                found = found[key]
            elif isinstance(found, list) and len(key) < 10 and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            else:
                raise BadOperation(f"$ref {ref[:80]!r} names nothing in the document")
        return found

    def followed(self, value: Any) -> Mapping[str, Any]:
        """The object itself, behind whatever references; BadOperation where there is none."""
        for _ in range(REFERENCES_MAX):
            if not isinstance(value, Mapping):
                raise BadOperation("a part of it is no JSON object")
            ref = value.get("$ref")
            if not isinstance(ref, str):
                return value
            value = self.target(ref)
        raise BadOperation("a $ref leads to itself")

    def operations(self) -> Iterator[Operation | tuple[str, str]]:
        """In the order of the document. In place of one that cannot be: its name, and why."""
        seen: set[str] = set()
        for path, item in self.root.get("paths", {}).items():
            try:
                found = self.followed(item)
            except BadOperation as error:
                yield str(path), str(error)
                continue
            for method in [key for key in found if key in METHODS]:
                name = _name(method, str(path), found[method], seen)
                seen.add(name)
                try:
                    yield self._operation(name, method, str(path), found)
                except BadOperation as error:
                    yield name, str(error)

    def _operation(self, name: str, method: str, path: str, item: Mapping[str, Any]) -> Operation:
        own = item[method]
        if not isinstance(own, Mapping):
            raise BadOperation("it is no JSON object")
        if not path.startswith("/"):
            raise BadOperation("its path does not begin with /")
        texts = [text for key in ("summary", "description") if isinstance(text := own.get(key), str)]
        if not texts:
            texts = [text for key in ("summary", "description") if isinstance(text := item.get(key), str)]
        parameters: dict[tuple[str, str], Mapping[str, Any]] = {}
        for level in (item, own):  # an operation's own take the place of the path's
            listed = level.get("parameters", [])
            for parameter in listed if isinstance(listed, list) else ():
                found = self.followed(parameter)
                if not isinstance(found.get("name"), str):
                    raise BadOperation("a parameter has no name")
                parameters[str(found.get("in")), found["name"]] = found
        body = own.get("requestBody")
        return Operation(
            name=name,
            method=method.upper(),
            path=path,
            description="\n\n".join(dict.fromkeys(texts)) or f"{method.upper()} {path}",
            parameters=list(parameters.values()),
            body=self.followed(body) if body is not None else None,
        )


def _name(method: str, path: str, operation: Any, seen: set[str]) -> str:
    """The operationId, or (without one, or where another has it already) the method and the path."""
    own = operation.get("operationId") if isinstance(operation, Mapping) else None
    return own if isinstance(own, str) and own and own not in seen else f"{method}_{path}"
