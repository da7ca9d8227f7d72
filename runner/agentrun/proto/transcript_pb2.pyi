from agentrun.proto import log_pb2 as _log_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_STOP: _ClassVar[FinishReason]
    FINISH_REASON_TOOL_CALLS: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]
    FINISH_REASON_CONTENT_FILTER: _ClassVar[FinishReason]
    FINISH_REASON_REFUSAL: _ClassVar[FinishReason]
    FINISH_REASON_PAUSE: _ClassVar[FinishReason]
    FINISH_REASON_OTHER: _ClassVar[FinishReason]

class ToolOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOOL_OUTCOME_UNSPECIFIED: _ClassVar[ToolOutcome]
    TOOL_OUTCOME_OK: _ClassVar[ToolOutcome]
    TOOL_OUTCOME_ERROR: _ClassVar[ToolOutcome]
    TOOL_OUTCOME_TIMED_OUT: _ClassVar[ToolOutcome]
    TOOL_OUTCOME_UNKNOWN: _ClassVar[ToolOutcome]
    TOOL_OUTCOME_NOT_RUN: _ClassVar[ToolOutcome]
    TOOL_OUTCOME_DENIED: _ClassVar[ToolOutcome]

class ToolEffect(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOOL_EFFECT_UNSPECIFIED: _ClassVar[ToolEffect]
    TOOL_EFFECT_READ_ONLY: _ClassVar[ToolEffect]
    TOOL_EFFECT_IDEMPOTENT: _ClassVar[ToolEffect]
    TOOL_EFFECT_UNSAFE: _ClassVar[ToolEffect]
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_TOOL_CALLS: FinishReason
FINISH_REASON_LENGTH: FinishReason
FINISH_REASON_CONTENT_FILTER: FinishReason
FINISH_REASON_REFUSAL: FinishReason
FINISH_REASON_PAUSE: FinishReason
FINISH_REASON_OTHER: FinishReason
TOOL_OUTCOME_UNSPECIFIED: ToolOutcome
TOOL_OUTCOME_OK: ToolOutcome
TOOL_OUTCOME_ERROR: ToolOutcome
TOOL_OUTCOME_TIMED_OUT: ToolOutcome
TOOL_OUTCOME_UNKNOWN: ToolOutcome
TOOL_OUTCOME_NOT_RUN: ToolOutcome
TOOL_OUTCOME_DENIED: ToolOutcome
TOOL_EFFECT_UNSPECIFIED: ToolEffect
TOOL_EFFECT_READ_ONLY: ToolEffect
TOOL_EFFECT_IDEMPOTENT: ToolEffect
TOOL_EFFECT_UNSAFE: ToolEffect

class UserMessage(_message.Message):
    __slots__ = ("text", "prompt")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    text: str
    prompt: bool
    def __init__(self, text: _Optional[str] = ..., prompt: _Optional[bool] = ...) -> None: ...

class AssistantTurn(_message.Message):
    __slots__ = ("parts", "finish", "finish_raw", "model", "provider", "truncated", "response_id", "state")
    PARTS_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    FINISH_RAW_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[Part]
    finish: FinishReason
    finish_raw: str
    model: str
    provider: str
    truncated: bool
    response_id: str
    state: ModelState
    def __init__(self, parts: _Optional[_Iterable[_Union[Part, _Mapping]]] = ..., finish: _Optional[_Union[FinishReason, str]] = ..., finish_raw: _Optional[str] = ..., model: _Optional[str] = ..., provider: _Optional[str] = ..., truncated: _Optional[bool] = ..., response_id: _Optional[str] = ..., state: _Optional[_Union[ModelState, _Mapping]] = ...) -> None: ...

class ModelState(_message.Message):
    __slots__ = ("place", "given_up", "tries", "turns_away", "refused")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    GIVEN_UP_FIELD_NUMBER: _ClassVar[int]
    TRIES_FIELD_NUMBER: _ClassVar[int]
    TURNS_AWAY_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    place: int
    given_up: _containers.RepeatedScalarFieldContainer[int]
    tries: _containers.RepeatedScalarFieldContainer[int]
    turns_away: int
    refused: _containers.RepeatedCompositeFieldContainer[RefusedOption]
    def __init__(self, place: _Optional[int] = ..., given_up: _Optional[_Iterable[int]] = ..., tries: _Optional[_Iterable[int]] = ..., turns_away: _Optional[int] = ..., refused: _Optional[_Iterable[_Union[RefusedOption, _Mapping]]] = ...) -> None: ...

class RefusedOption(_message.Message):
    __slots__ = ("place", "option")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    OPTION_FIELD_NUMBER: _ClassVar[int]
    place: int
    option: str
    def __init__(self, place: _Optional[int] = ..., option: _Optional[str] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("text", "thinking", "tool_call", "opaque", "provider_details")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    THINKING_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_FIELD_NUMBER: _ClassVar[int]
    OPAQUE_FIELD_NUMBER: _ClassVar[int]
    PROVIDER_DETAILS_FIELD_NUMBER: _ClassVar[int]
    text: TextPart
    thinking: ThinkingPart
    tool_call: ToolCallPart
    opaque: OpaquePart
    provider_details: str
    def __init__(self, text: _Optional[_Union[TextPart, _Mapping]] = ..., thinking: _Optional[_Union[ThinkingPart, _Mapping]] = ..., tool_call: _Optional[_Union[ToolCallPart, _Mapping]] = ..., opaque: _Optional[_Union[OpaquePart, _Mapping]] = ..., provider_details: _Optional[str] = ...) -> None: ...

class TextPart(_message.Message):
    __slots__ = ("text", "id")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    text: str
    id: str
    def __init__(self, text: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class ThinkingPart(_message.Message):
    __slots__ = ("text", "signature", "id", "redacted")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    REDACTED_FIELD_NUMBER: _ClassVar[int]
    text: str
    signature: str
    id: str
    redacted: bool
    def __init__(self, text: _Optional[str] = ..., signature: _Optional[str] = ..., id: _Optional[str] = ..., redacted: _Optional[bool] = ...) -> None: ...

class ToolCallPart(_message.Message):
    __slots__ = ("wire_id", "name", "arguments", "id")
    WIRE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    wire_id: str
    name: str
    arguments: str
    id: str
    def __init__(self, wire_id: _Optional[str] = ..., name: _Optional[str] = ..., arguments: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class OpaquePart(_message.Message):
    __slots__ = ("provider", "kind", "json")
    PROVIDER_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    provider: str
    kind: str
    json: str
    def __init__(self, provider: _Optional[str] = ..., kind: _Optional[str] = ..., json: _Optional[str] = ...) -> None: ...

class ToolResult(_message.Message):
    __slots__ = ("name", "content", "outcome", "whole_bytes", "answered")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    WHOLE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    name: str
    content: str
    outcome: ToolOutcome
    whole_bytes: int
    answered: Answered
    def __init__(self, name: _Optional[str] = ..., content: _Optional[str] = ..., outcome: _Optional[_Union[ToolOutcome, str]] = ..., whole_bytes: _Optional[int] = ..., answered: _Optional[_Union[Answered, _Mapping]] = ...) -> None: ...

class Answered(_message.Message):
    __slots__ = ("id", "answer", "at_us")
    ID_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    AT_US_FIELD_NUMBER: _ClassVar[int]
    id: str
    answer: _log_pb2.Answer
    at_us: int
    def __init__(self, id: _Optional[str] = ..., answer: _Optional[_Union[_log_pb2.Answer, _Mapping]] = ..., at_us: _Optional[int] = ...) -> None: ...

class Shortening(_message.Message):
    __slots__ = ("results_to", "summary_to", "summary", "window_tokens")
    RESULTS_TO_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_TO_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    WINDOW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    results_to: int
    summary_to: int
    summary: str
    window_tokens: int
    def __init__(self, results_to: _Optional[int] = ..., summary_to: _Optional[int] = ..., summary: _Optional[str] = ..., window_tokens: _Optional[int] = ...) -> None: ...

class ToolList(_message.Message):
    __slots__ = ("tools", "warnings", "unavailable")
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABLE_FIELD_NUMBER: _ClassVar[int]
    tools: _containers.RepeatedCompositeFieldContainer[ListedTool]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    unavailable: str
    def __init__(self, tools: _Optional[_Iterable[_Union[ListedTool, _Mapping]]] = ..., warnings: _Optional[_Iterable[str]] = ..., unavailable: _Optional[str] = ...) -> None: ...

class ListedTool(_message.Message):
    __slots__ = ("name", "label", "description", "parameters_json", "effect", "binding")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_JSON_FIELD_NUMBER: _ClassVar[int]
    EFFECT_FIELD_NUMBER: _ClassVar[int]
    BINDING_FIELD_NUMBER: _ClassVar[int]
    name: str
    label: str
    description: str
    parameters_json: str
    effect: ToolEffect
    binding: bytes
    def __init__(self, name: _Optional[str] = ..., label: _Optional[str] = ..., description: _Optional[str] = ..., parameters_json: _Optional[str] = ..., effect: _Optional[_Union[ToolEffect, str]] = ..., binding: _Optional[bytes] = ...) -> None: ...

class RunResult(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...
