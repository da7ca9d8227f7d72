"""What operations of a document become: their names, arguments, effects; and what is left out, and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from agentrun.tools.inputschema import normalised
from agentrun.tools.openapi.document import BadDocument, BadOperation, Document, Operation
from agentrun.tools.openapi.plan import plan


def document(paths: Mapping[str, Any], version: str = "3.1.0", **more: Any) -> Document:
    return Document({"openapi": version, "info": {"title": "t", "version": "1"}, "paths": paths, **more})


def planned(found: Document, headers: tuple[str, ...] = ()) -> dict[str, Any]:
    """By the operation's name: the schema, as a model is told it, or why there is none."""
    tools: dict[str, Any] = {}
    for operation in found.operations():
        if isinstance(operation, Operation):
            try:
                schema, _ = plan(operation, found, headers)
                tools[operation.name] = normalised(schema)[0]
            except BadOperation as error:
                tools[operation.name] = str(error)
        else:
            tools[operation[0]] = operation[1]
    return tools


def one(operation: Mapping[str, Any], version: str = "3.1.0", **more: Any) -> Any:
    """What one operation becomes."""
    (found,) = planned(
        document({"/a": {"post": {"operationId": "op", **operation}}}, version, **more)
    ).values()
    return found


def parameter(name: str, where: str = "query", **more: Any) -> dict[str, Any]:
    return {"name": name, "in": where, "schema": {"type": "string"}, **more}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([], "no JSON object"),
        ({"swagger": "2.0"}, "Swagger 2.0; OpenAPI 3.0 or 3.1 is needed"),
        ({"openapi": "4.0.0"}, "'4.0.0'; 3.0.x or 3.1.x"),
        ({}, "is ''; 3.0.x"),
        ({"openapi": "3.1.0", "paths": []}, "paths is no JSON object"),
    ],
)
def test_what_is_no_document_says_why(value: Any, why: str) -> None:
    with pytest.raises(BadDocument, match=why.replace(".", r"\.")):
        Document(value)


def test_a_document_may_have_no_paths() -> None:
    assert planned(Document({"openapi": "3.1.0"})) == {}


def test_names_are_operation_ids_or_else_method_and_path() -> None:
    paths = {
        "/a": {"get": {"operationId": "list"}, "post": {"operationId": "list"}, "options": {}},
        "/b/{id}": {"get": {"parameters": [parameter("id", "path", required=True)]}, "x-internal": 1},
    }
    assert list(planned(document(paths))) == ["list", "post_/a", "get_/b/{id}"]


def test_an_operations_parameters_take_the_place_of_its_paths() -> None:
    paths = {
        "/a": {
            "parameters": [parameter("q", description="the path's"), parameter("r")],
            "get": {
                "operationId": "op",
                "parameters": [parameter("q", description="its own", required=True)],
            },
        }
    }
    schema = planned(document(paths))["op"]
    assert schema["properties"]["q"] == {"type": "string", "description": "its own"}
    assert (list(schema["properties"]), schema["required"]) == (["q", "r"], ["q"])


def test_parameters_of_one_name_in_two_places_and_a_body_are_told_apart() -> None:
    body = {"content": {"application/json": {"schema": {"type": "object"}}}}
    listed = [parameter("id"), parameter("id", "header"), parameter("id", "cookie"), parameter("body")]
    schema = one({"parameters": listed, "requestBody": body})
    assert list(schema["properties"]) == ["id", "header_id", "cookie_id", "body", "request_body"]


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("filter[name]", "filter_name_"),
        ("$top", "_top"),
        ("é", "_"),
        ("x" * 99, "x" * 60),
        ("a.b-c_1", "a.b-c_1"),
    ],
)
def test_names_that_providers_refuse_are_changed(name: str, argument: str) -> None:
    assert list(one({"parameters": [parameter(name, required=True)]})["properties"]) == [argument]


def test_headers_that_the_manifest_sets_or_that_are_nobodys_business_are_no_arguments() -> None:
    listed = [parameter(name, "header") for name in ("X-Key", "Authorization", "Accept", "X-Trace")]
    found = document({"/a": {"get": {"operationId": "op", "parameters": listed}}})
    assert list(planned(found, ("x-key",))["op"]["properties"]) == ["X-Trace"]


NODE = {
    "type": "object",
    "required": ["id", "value"],
    "properties": {
        "id": {"type": "integer", "readOnly": True},
        "value": {"type": "number"},
        "next": {"$ref": "#/components/schemas/Node"},
        "odd": {"$ref": "#/components/schemas/A~1B%20C"},
    },
}
SCHEMAS = {"Node": NODE, "A/B C": {"type": "string"}}


def body_of(schema: Any, **more: Any) -> dict[str, Any]:
    return {"requestBody": {"content": {"application/json": {"schema": schema}}, **more}}


def test_references_come_along_each_once_also_to_itself_and_read_only_is_not_sent() -> None:
    schema = one(body_of({"$ref": "#/components/schemas/Node"}), components={"schemas": SCHEMAS})
    assert len(schema["$defs"]) == 2
    node = schema["$defs"]["Node"]
    assert set(node["properties"]) == {"value", "next", "odd"} and node["required"] == ["value"]
    assert node["properties"]["next"] == {"$ref": "#/$defs/Node"}
    json.dumps(schema)


@pytest.mark.parametrize(
    ("written", "becomes"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        (
            {"type": "string", "nullable": True, "enum": ["a"]},
            {"type": ["string", "null"], "enum": ["a", None]},
        ),
        (
            {"type": "number", "minimum": 1, "exclusiveMinimum": True},
            {"type": "number", "exclusiveMinimum": 1},
        ),
        ({"type": "number", "maximum": 1, "exclusiveMaximum": False}, {"type": "number", "maximum": 1}),
        (
            {"nullable": True, "allOf": [{"type": "string"}]},
            {"anyOf": [{"allOf": [{"type": "string"}]}, {"type": "null"}]},
        ),
        ({"type": "string", "example": "x", "xml": {}, "discriminator": {}}, {"type": "string"}),
    ],
)
def test_the_dialect_of_3_0_becomes_json_schema(written: Any, becomes: Any) -> None:
    assert one({"parameters": [{**parameter("q"), "schema": written}]}, "3.0.3")["properties"]["q"] == becomes


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        ({"parameters": [{"$ref": "other.yaml#/x"}]}, "names another document, which is not fetched"),
        ({"parameters": [{"$ref": "#/components/x"}]}, "names nothing in the document"),
        ({"parameters": [{"$ref": f"#/paths/~1a/post/parameters/{'9' * 5000}"}]}, "names nothing in the"),
        (body_of({"$ref": "http://else.where/s.json"}), "names another document"),
        ({"requestBody": {"$ref": "#/paths/~1a/post/requestBody"}}, "leads to itself"),
        ({"parameters": [{"in": "query"}]}, "a parameter has no name"),
        ({"parameters": [parameter("q", "body")]}, "is in 'body'"),
        ({"parameters": [parameter("q", style="matrix")]}, "has the style 'matrix'"),
        ({"requestBody": {"required": True, "content": {"image/png": {}}}}, "no form that can be sent"),
    ],
)
def test_what_cannot_be_a_tool_is_left_out_and_says_why(operation: Mapping[str, Any], why: str) -> None:
    found = one(operation)
    assert isinstance(found, str) and why in found


def test_one_odd_operation_costs_the_others_nothing() -> None:
    paths = {
        "/a": {"get": {"operationId": "bad", "parameters": [{"$ref": "x"}]}, "put": {"operationId": "good"}},
        "/b": {"$ref": "other.yaml"},
        "/c": 5,
        "/d": {"get": 7, "post": {"operationId": "also", "parameters": "none"}},
        "/e/{id}": {"get": {"operationId": "unnamed"}},
    }
    found = planned(document(paths))
    assert [name for name, tool in found.items() if not isinstance(tool, str)] == ["good", "also"]
    assert "names {id}, which is no parameter" in found["unnamed"]


def test_a_body_whose_schema_is_very_long_is_described_in_words() -> None:
    long = {f"field_{k}": {"type": "string", "description": "d" * 100} for k in range(1000)}
    schema = one(
        body_of({"$ref": "#/components/schemas/Long"}, required=True),
        components={"schemas": {"Long": {"type": "object", "properties": long}}},
    )
    assert "too long to be told here" in schema["properties"]["body"]["description"]
    assert schema["required"] == ["body"] and len(json.dumps(schema)) < 1000


def test_a_long_body_without_references_is_described_in_words_too() -> None:
    long = {f"field_{k}": {"type": "string", "description": "d" * 100} for k in range(1000)}
    schema = one(body_of({"type": "object", "properties": long}, required=True))
    assert "too long to be told here" in schema["properties"]["body"]["description"]


def test_what_the_parameters_refer_to_stays_where_the_body_is_too_long() -> None:
    color = {"type": "string", "enum": ["red", "blue"]}
    long = {f"field_{k}": {"type": "string", "description": "d" * 100} for k in range(1000)}
    schema = one(
        {
            **body_of({"$ref": "#/components/schemas/Long"}),
            "parameters": [{**parameter("color"), "schema": {"$ref": "#/components/schemas/Color"}}],
        },
        components={"schemas": {"Long": {"type": "object", "properties": long}, "Color": color}},
    )
    assert "too long to be told here" in schema["properties"]["body"]["description"]
    assert schema["properties"]["color"] == {"$ref": "#/$defs/Color"}
    assert schema["$defs"] == {"Color": color}


def test_parameters_whose_schemas_are_very_long_cost_their_operation_alone() -> None:
    long = {"type": "string", "enum": [f"value {k}" for k in range(10000)]}
    paths = {
        "/a": {"get": {"operationId": "long", "parameters": [{**parameter("q"), "schema": ref("Long")}]}},
        "/b": {"get": {"operationId": "short"}},
    }
    found = planned(document(paths, components={"schemas": {"Long": long}}))
    assert "the schemas of its parameters have more than" in found["long"]
    assert not isinstance(found["short"], str)


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


@pytest.mark.parametrize("length", [400, 4000])
def test_a_chain_of_references_may_be_longer_than_the_stack(length: int) -> None:
    schemas: dict[str, Any] = {
        f"S{k}": {"type": "object", "properties": {"next": ref(f"S{k + 1}")}} for k in range(length)
    }
    found = one(body_of(ref("S0")), components={"schemas": {**schemas, f"S{length}": {"type": "string"}}})
    if length == 400:
        assert len(found["$defs"]) == 401 and found["$defs"]["S400"] == {"type": "string"}
    else:
        assert "too long to be told here" in found["properties"]["body"]["description"]


def test_many_operations_that_refer_to_all_of_a_large_document_are_each_told_in_words() -> None:
    schemas = {
        f"S{k}": {
            "type": "object",
            "properties": {f"p{j}": ref(f"S{(k * 7 + j) % 1500}") for j in range(20)},
        }
        for k in range(1500)
    }
    paths = {f"/o{k}": {"post": {"operationId": f"o{k}", **body_of(ref("S0"))}} for k in range(200)}
    found = document(paths, components={"schemas": schemas})
    converted = 0
    for operation in found.operations():
        assert isinstance(operation, Operation)
        schema, _ = plan(operation, found, ())
        converted += len(json.dumps(schema))
    assert converted < 200 * 1000, "each is told in words, and no large schema is made each time"


def test_a_schema_that_nests_for_ever_is_refused() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    assert "nested deeper" in one(body_of(deep))


@pytest.mark.parametrize(
    ("servers", "address"),
    [
        (None, ""),
        ([], ""),
        ([{"url": "/v1"}], "/v1"),
        (
            [
                {
                    "url": "https://{region}.a/{v}",
                    "variables": {"region": {"default": "eu"}, "v": {"default": "2"}},
                }
            ],
            "https://eu.a/2",
        ),
        ("odd", ""),
    ],
)
def test_the_first_server_with_its_defaults(servers: Any, address: str) -> None:
    assert Document({"openapi": "3.1.0", "servers": servers}).server == address
