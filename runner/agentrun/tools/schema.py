"""The JSON schema of a Python function, and the check of arguments against it.

Imported only when a Python tool is set up, for it imports pydantic. Invariant: a
function is called with what its annotations say, or not at all.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

import pydantic
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from agentrun.log.text import safe_text
from agentrun.tools.context import ToolContext
from agentrun.tools.docstring import read_docstring
from agentrun.tools.errors import ArgumentsError, ToolSetupError

_FAULTS_SHOWN_MAX = 10
_INPUT_SHOWN_MAX = 80


@dataclass(frozen=True, kw_only=True)
class FunctionSchema:
    """What is known of a function's parameters.

    `fields` maps a parameter's name to the model's field for it: a field's own name
    could clash with something of pydantic's, an alias cannot.
    """

    description: str
    parameters: Mapping[str, Any]
    model: type[pydantic.BaseModel]
    fields: Mapping[str, str]
    signature: inspect.Signature
    context_parameter: str | None

    def bind(self, arguments: dict[str, Any], context: ToolContext) -> inspect.BoundArguments:
        """The call's arguments, converted; raises ArgumentsError with a line for each fault."""
        try:
            checked = self.model.model_validate(arguments)
        except pydantic.ValidationError as error:
            raise ArgumentsError(self._faults(error)) from None
        # Only what was given: the function's own defaults are not ours to check or convert.
        values = {name: getattr(checked, field) for name, field in self.fields.items() if name in arguments}
        if self.context_parameter is not None:
            values[self.context_parameter] = context
        bound = self.signature.bind_partial()
        bound.arguments = {name: values[name] for name in self.signature.parameters if name in values}
        bound.apply_defaults()  # a positional-only parameter behind one that was not given needs them
        return bound

    def _faults(self, error: pydantic.ValidationError) -> str:
        lines = []
        faults = error.errors(include_url=False, include_context=False)
        for fault in faults[:_FAULTS_SHOWN_MAX]:
            where = ".".join(map(str, fault["loc"])) or "(all)"
            if fault["type"] == "extra_forbidden" and len(fault["loc"]) == 1:
                lines.append(f"- {where}: there is no such argument")
            elif fault["type"] == "missing":
                lines.append(f"- {where}: required, and not given")
            else:
                shown = repr(fault["input"])
                shown = shown if len(shown) <= _INPUT_SHOWN_MAX else shown[:_INPUT_SHOWN_MAX] + "…"
                lines.append(f"- {where}: {fault['msg']} (given: {shown})")
        if len(faults) > _FAULTS_SHOWN_MAX:
            lines.append(f"- and {len(faults) - _FAULTS_SHOWN_MAX} more")
        takes = ", ".join(self._takes()) or "none"
        return safe_text("\n".join(["these arguments do not fit:", *lines, f"Arguments are: {takes}"]))

    def _takes(self) -> list[str]:
        required, definitions = self.parameters.get("required", []), self.parameters.get("$defs", {})
        return [
            f"{name} ({_type_name(schema, definitions)}{', required' if name in required else ''})"
            for name, schema in self.parameters["properties"].items()
        ]


class _Schema(GenerateJsonSchema):
    # A default that JSON does not know is left out of the schema; that is no fault.
    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False  # a title repeats the name, at the price of tokens


def read_function(function: Callable[..., Any], entrypoint: str) -> FunctionSchema:
    """The schema of `function`; raises ToolSetupError that says what it cannot have."""
    try:
        # Strings too, as `from __future__ import annotations` makes them.
        signature = inspect.signature(function, eval_str=True)
    except Exception as error:
        raise ToolSetupError(f"{entrypoint}: its signature cannot be read: {error}") from error
    described = function if inspect.isroutine(function) else getattr(function, "func", function)
    description, texts = read_docstring(inspect.getdoc(described))
    context_parameter = None
    definitions: dict[str, Any] = {}
    fields: dict[str, str] = {}
    for name, parameter in signature.parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ToolSetupError(f"{entrypoint}: it takes *{name}; each argument needs a name and a type")
        if _is_context(parameter.annotation):
            context_parameter = name
            continue
        if isinstance(parameter.annotation, str):  # a name in quotes, under `from __future__`
            raise ToolSetupError(f"{entrypoint}: the type {parameter.annotation!r} of {name} is not known")
        fields[name] = f"argument_{len(fields)}"
        definitions[fields[name]] = _field(name, parameter, texts.get(name))
    model, schema = _model(definitions, entrypoint)
    return FunctionSchema(
        description=description,
        parameters=schema,
        model=model,
        fields=fields,
        signature=signature,
        context_parameter=context_parameter,
    )


def _model(definitions: dict[str, Any], entrypoint: str) -> tuple[type[pydantic.BaseModel], dict[str, Any]]:
    try:
        model: type[pydantic.BaseModel] = pydantic.create_model(
            "Arguments", __config__=pydantic.ConfigDict(extra="forbid"), **definitions
        )
        schema = model.model_json_schema(schema_generator=_Schema)
    except (
        pydantic.errors.PydanticUserError,
        pydantic.errors.PydanticUndefinedAnnotation,
        TypeError,
    ) as error:
        first = str(error).partition("\n")[0]
        raise ToolSetupError(f"{entrypoint}: no JSON schema for its parameters: {first}") from error
    schema.pop("title", None)
    schema.setdefault("properties", {})
    return model, schema


def _field(name: str, parameter: inspect.Parameter, text: str | None) -> tuple[Any, Any]:
    annotation = Any if parameter.annotation is parameter.empty else parameter.annotation
    settings: dict[str, Any] = {"alias": name}
    own = any(getattr(item, "description", None) for item in getattr(annotation, "__metadata__", ()))
    if text and not own:
        settings["description"] = text
    if parameter.default is not parameter.empty:
        settings["default"] = parameter.default
    return annotation, pydantic.Field(**settings)


def _is_context(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _is_context(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return any(_is_context(item) for item in get_args(annotation))
    return annotation is ToolContext


def _type_name(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type_name(item, definitions) for item in schema["anyOf"]))
    return str(schema.get("type", "any"))
