"""A function of the image becomes a tool: its signature is the schema."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentrun.tools import ToolSetupError, build_tool
from tests.unit.tools.helpers import SAMPLES as MODULE
from tests.unit.tools.helpers import python_tool as tool


def schema(function: str) -> Any:
    return tool(function).definition.parameters


def test_the_schema_comes_from_signature_and_docstring() -> None:
    weather = tool("documented").definition
    assert weather.description == "Tells the weather.\n\nOf one city, for some days."
    assert weather.parameters == {
        "type": "object",
        "additionalProperties": False,
        "required": ["city"],
        "properties": {
            "city": {"type": "string", "description": "The city's name, in any language."},
            "days": {
                "type": "integer",
                "minimum": 1,
                "maximum": 7,
                "default": 3,
                "description": "How many days.",
            },
            "unit": {"$ref": "#/$defs/Unit", "default": "m"},
            "schema": {"anyOf": [{"enum": ["a", "b"], "type": "string"}, {"type": "null"}], "default": None},
        },
        "$defs": {"Unit": {"enum": ["m", "ft"], "title": "Unit", "type": "string"}},
    }


@pytest.mark.parametrize("function", ["in_sphinx_style", "in_numpy_style"])
def test_other_styles_of_docstrings_are_read_too(function: str) -> None:
    found = tool(function).definition
    assert found.description == "Tells the weather."
    assert {name: value["description"] for name, value in found.parameters["properties"].items()} == {
        "city": "The city's name, in any language.",
        "days": "How many days.",
    }


def test_the_manifest_has_the_last_word_on_description_and_parameters() -> None:
    mine = {"type": "object", "properties": {"city": {"type": "string"}}}
    found = tool("documented", description="Mine.", parameters=mine).definition
    assert (found.description, found.parameters) == ("Mine.", mine)


def test_the_context_is_not_in_the_schema() -> None:
    assert list(schema("with_context")["properties"]) == ["text"]
    assert schema("with_optional_context")["properties"] == {}


def test_a_default_that_json_does_not_know_is_left_out() -> None:
    assert schema("opaque_default")["properties"] == {"when": {}}


@pytest.mark.parametrize(
    ("entrypoint", "says"),
    [
        ("no_such_package.module:f", "there is no module no_such_package"),
        ("tests.unit.tools.nothing_here:f", "there is no module tests.unit.tools.nothing_here"),
        (f"{MODULE}:nothing", f"{MODULE} has no nothing"),
        (f"{MODULE}:Adder.nothing", f"{MODULE} has no Adder.nothing"),
        (f"{MODULE}:not_callable", "not_callable is a int, which cannot be called"),
        (f"{MODULE}:generator", "generator is a generator"),
        (f"{MODULE}:takes_anything", "takes *args"),
        (f"{MODULE}:takes_function", "no JSON schema for its parameters"),
        (f"{MODULE}:takes_unknown", "signature cannot be read: name 'Missing' is not defined"),
        (f"{MODULE}:takes_quoted", "the type 'Missing' of what is not known"),
        (f"{MODULE}:Adder", "Adder is a class; name a function"),
        (f"{MODULE}:Adder.__call__", "Adder.__call__ is a method, which needs an object"),
        ("module.function", "not of the form package.module:function"),
        (":f", "not of the form package.module:function"),
    ],
)
def test_a_tool_that_cannot_be_built_says_why_in_one_line(entrypoint: str, says: str) -> None:
    with pytest.raises(ToolSetupError) as error:
        build_tool(name="mine", python=entrypoint)
    assert str(error.value).startswith("tool mine: ")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import no_such_thing", "needs a module that is missing: No module named"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_module_that_fails_to_import_says_why(
    source: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"broken_{len(source)}"
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ToolSetupError, match=says):
        build_tool(name="mine", python=f"{name}:f")


def test_a_tool_is_of_exactly_one_kind() -> None:
    with pytest.raises(ToolSetupError, match="exactly one kind"):
        build_tool(name="mine")


def test_importing_tools_imports_no_client_and_no_pydantic() -> None:
    script = (
        "import sys, agentrun.tools\n"
        "print([name for name in ('httpx2', 'httpcore2', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.strip() == "[]"
