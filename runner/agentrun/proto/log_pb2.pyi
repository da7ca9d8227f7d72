from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Decision(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DECISION_UNSPECIFIED: _ClassVar[Decision]
    DECISION_APPROVE: _ClassVar[Decision]
    DECISION_DENY: _ClassVar[Decision]

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_SUCCEEDED: _ClassVar[Outcome]
    OUTCOME_FAILED: _ClassVar[Outcome]
    OUTCOME_CANCELLED: _ClassVar[Outcome]
DECISION_UNSPECIFIED: Decision
DECISION_APPROVE: Decision
DECISION_DENY: Decision
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_SUCCEEDED: Outcome
OUTCOME_FAILED: Outcome
OUTCOME_CANCELLED: Outcome

class NodeRecord(_message.Message):
    __slots__ = ("format", "id", "parents", "kind", "output", "spawned", "cost", "error", "attempt", "epoch", "writer", "started_us", "finished_us", "final", "consumed", "attachments", "ask")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    SPAWNED_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WRITER_FIELD_NUMBER: _ClassVar[int]
    STARTED_US_FIELD_NUMBER: _ClassVar[int]
    FINISHED_US_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_FIELD_NUMBER: _ClassVar[int]
    ATTACHMENTS_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    format: int
    id: str
    parents: _containers.RepeatedScalarFieldContainer[str]
    kind: str
    output: Payload
    spawned: _containers.RepeatedCompositeFieldContainer[Spawn]
    cost: Cost
    error: Error
    attempt: int
    epoch: int
    writer: bytes
    started_us: int
    finished_us: int
    final: Final
    consumed: _containers.RepeatedScalarFieldContainer[str]
    attachments: _containers.RepeatedCompositeFieldContainer[Payload]
    ask: Ask
    def __init__(self, format: _Optional[int] = ..., id: _Optional[str] = ..., parents: _Optional[_Iterable[str]] = ..., kind: _Optional[str] = ..., output: _Optional[_Union[Payload, _Mapping]] = ..., spawned: _Optional[_Iterable[_Union[Spawn, _Mapping]]] = ..., cost: _Optional[_Union[Cost, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ..., attempt: _Optional[int] = ..., epoch: _Optional[int] = ..., writer: _Optional[bytes] = ..., started_us: _Optional[int] = ..., finished_us: _Optional[int] = ..., final: _Optional[_Union[Final, _Mapping]] = ..., consumed: _Optional[_Iterable[str]] = ..., attachments: _Optional[_Iterable[_Union[Payload, _Mapping]]] = ..., ask: _Optional[_Union[Ask, _Mapping]] = ...) -> None: ...

class Ask(_message.Message):
    __slots__ = ("id", "reason", "subject", "detail")
    ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    id: str
    reason: str
    subject: str
    detail: str
    def __init__(self, id: _Optional[str] = ..., reason: _Optional[str] = ..., subject: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("decision", "by", "reason", "arguments")
    DECISION_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    decision: Decision
    by: str
    reason: str
    arguments: str
    def __init__(self, decision: _Optional[_Union[Decision, str]] = ..., by: _Optional[str] = ..., reason: _Optional[str] = ..., arguments: _Optional[str] = ...) -> None: ...

class Payload(_message.Message):
    __slots__ = ("inline", "blob", "media_type")
    INLINE_FIELD_NUMBER: _ClassVar[int]
    BLOB_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    inline: bytes
    blob: BlobRef
    media_type: str
    def __init__(self, inline: _Optional[bytes] = ..., blob: _Optional[_Union[BlobRef, _Mapping]] = ..., media_type: _Optional[str] = ...) -> None: ...

class BlobRef(_message.Message):
    __slots__ = ("url", "size_bytes", "sha256")
    URL_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    url: str
    size_bytes: int
    sha256: bytes
    def __init__(self, url: _Optional[str] = ..., size_bytes: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class Spawn(_message.Message):
    __slots__ = ("id", "kind", "input", "parents")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: str
    input: Payload
    parents: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[str] = ..., input: _Optional[_Union[Payload, _Mapping]] = ..., parents: _Optional[_Iterable[str]] = ...) -> None: ...

class Cost(_message.Message):
    __slots__ = ("tokens_in", "tokens_out", "tokens_cached", "tokens_reasoning", "wall_ms", "retries", "turns", "estimated")
    TOKENS_IN_FIELD_NUMBER: _ClassVar[int]
    TOKENS_OUT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_CACHED_FIELD_NUMBER: _ClassVar[int]
    TOKENS_REASONING_FIELD_NUMBER: _ClassVar[int]
    WALL_MS_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_FIELD_NUMBER: _ClassVar[int]
    tokens_in: int
    tokens_out: int
    tokens_cached: int
    tokens_reasoning: int
    wall_ms: int
    retries: int
    turns: int
    estimated: bool
    def __init__(self, tokens_in: _Optional[int] = ..., tokens_out: _Optional[int] = ..., tokens_cached: _Optional[int] = ..., tokens_reasoning: _Optional[int] = ..., wall_ms: _Optional[int] = ..., retries: _Optional[int] = ..., turns: _Optional[int] = ..., estimated: _Optional[bool] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("reason", "message", "retryable", "retry_in_ms", "memo")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    RETRY_IN_MS_FIELD_NUMBER: _ClassVar[int]
    MEMO_FIELD_NUMBER: _ClassVar[int]
    reason: str
    message: str
    retryable: bool
    retry_in_ms: int
    memo: bytes
    def __init__(self, reason: _Optional[str] = ..., message: _Optional[str] = ..., retryable: _Optional[bool] = ..., retry_in_ms: _Optional[int] = ..., memo: _Optional[bytes] = ...) -> None: ...

class Final(_message.Message):
    __slots__ = ("outcome", "reason", "message")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    outcome: Outcome
    reason: str
    message: str
    def __init__(self, outcome: _Optional[_Union[Outcome, str]] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...
