"""The AgentRun manifest: typed models, loading, definitions and references.

Everything that reads, stores or serves a manifest imports from here. The models
are also the source of the CRD's schema, so every field has a description and
every string and list a bound.
"""

from agentrun.spec.agent import AgentSpec, SubAgentSpec
from agentrun.spec.approval import ApprovalCondition, ApprovalRule
from agentrun.spec.base import ConfigMapKeyRef, ManifestModel, SecretKeyRef, SecretSource, TextSource
from agentrun.spec.context import CompactionSpec, ContextSpec
from agentrun.spec.definition import (
    definition_bytes,
    definition_digest,
    definition_from_bytes,
    same_definition,
)
from agentrun.spec.errors import ManifestError, Problem
from agentrun.spec.header import HttpHeader
from agentrun.spec.manifest import load_manifest, parse_object
from agentrun.spec.mcp import EnvVar, McpServer
from agentrun.spec.metadata import ObjectMeta, PodMetadata, PodTemplate
from agentrun.spec.model import PROVIDERS, FallbackModel, ModelSettings, ModelSpec
from agentrun.spec.openapi import OpenApiTools
from agentrun.spec.run import (
    API_VERSION,
    KIND,
    AgentRun,
    AgentRunSpec,
    Budget,
    OnExceeded,
    PodRetentionPolicy,
    ProgramSpec,
    Shutdown,
)
from agentrun.spec.script import (
    FinishReason,
    Script,
    ScriptedError,
    ScriptedToolCall,
    ScriptedTurn,
    ScriptedUsage,
)
from agentrun.spec.secrets import resolve_secrets, secret_env_name, secret_refs
from agentrun.spec.texts import CONFIG_DIR_VARIABLE, resolve_texts
from agentrun.spec.tools import Effect, HttpArguments, HttpTool, OnUnknown, PythonTool, ToolSpec

__all__ = [
    "API_VERSION",
    "CONFIG_DIR_VARIABLE",
    "KIND",
    "PROVIDERS",
    "AgentRun",
    "AgentRunSpec",
    "AgentSpec",
    "ApprovalCondition",
    "ApprovalRule",
    "Budget",
    "CompactionSpec",
    "ConfigMapKeyRef",
    "ContextSpec",
    "Effect",
    "EnvVar",
    "FallbackModel",
    "FinishReason",
    "HttpArguments",
    "HttpHeader",
    "HttpTool",
    "ManifestError",
    "ManifestModel",
    "McpServer",
    "ModelSettings",
    "ModelSpec",
    "ObjectMeta",
    "OnExceeded",
    "OnUnknown",
    "OpenApiTools",
    "PodMetadata",
    "PodRetentionPolicy",
    "PodTemplate",
    "Problem",
    "ProgramSpec",
    "PythonTool",
    "Script",
    "ScriptedError",
    "ScriptedToolCall",
    "ScriptedTurn",
    "ScriptedUsage",
    "SecretKeyRef",
    "SecretSource",
    "Shutdown",
    "SubAgentSpec",
    "TextSource",
    "ToolSpec",
    "definition_bytes",
    "definition_digest",
    "definition_from_bytes",
    "load_manifest",
    "parse_object",
    "resolve_secrets",
    "resolve_texts",
    "same_definition",
    "secret_env_name",
    "secret_refs",
]
