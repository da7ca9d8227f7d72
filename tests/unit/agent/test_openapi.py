"""An API in a manifest: listed once, told from the record, called by what was recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentrun.agent import SetupError, prepare
from agentrun.spec import parse_object
from tests.support.agents import manifest

DOCUMENT = {
    "openapi": "3.1.0",
    "paths": {"/a/{id}": {"get": {"operationId": "get_a", "parameters": [{"name": "id", "in": "path"}]}}},
}


def spec(**api: Any) -> Any:
    entry = {"name": "api", "openapi": api}
    return parse_object(manifest([{"text": "x"}], [entry])).spec


def test_a_config_map_needs_a_folder_and_the_line_says_which_variable() -> None:
    api = spec(
        documentFrom={"configMapKeyRef": {"name": "apis", "key": "a.json"}}, baseURL="http://127.0.0.1:1"
    )
    with pytest.raises(
        SetupError, match=r"documentFrom: cannot be read: set AGENTRUN_CONFIG_DIR .*apis/a\.json"
    ):
        prepare(api, {})
    prepare(api, {}, config_dir=Path("/nowhere"))


def test_a_header_that_no_header_can_hold_is_told_at_once() -> None:
    api = spec(
        document=DOCUMENT,
        headers=[{"name": "X-Key", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    )
    with pytest.raises(SetupError, match=r"tools\[0\]\.openapi: header X-Key: its value has characters"):
        prepare(api, {("s", "k"): "a\nb"})


def test_a_definition_keeps_the_document_and_no_secret() -> None:
    from agentrun.spec import definition_bytes

    data = definition_bytes(
        parse_object(manifest([{"text": "x"}], [{"name": "api", "openapi": {"document": DOCUMENT}}]))
    )
    assert json.loads(data)["agent"]["tools"][0]["openapi"]["document"] == DOCUMENT


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"swagger": "2.0", "paths": {}}, "it is Swagger 2.0; OpenAPI 3.0 or 3.1 is needed"),
        (DOCUMENT, "it names no server with an address of its own: set baseURL"),
    ],
)
def test_a_document_in_the_manifest_is_judged_before_the_run_begins(document: Any, why: str) -> None:
    with pytest.raises(SetupError, match=rf"tools\[0\]\.openapi: the document: {why}"):
        prepare(spec(document=document), {})
    prepare(spec(document=DOCUMENT, baseURL="http://127.0.0.1:1"), {})
