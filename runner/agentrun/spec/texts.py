"""Texts that a manifest names instead of holding: promptFrom and instructionsFrom.

A ConfigMap's keys are files in a folder a ConfigMap (in a pod they are mounted
so; on a machine of one's own they are plain files). The runner reads them once,
at the first claim, and stores the text; later edits change nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentrun.spec.agent import AgentSpec
from agentrun.spec.base import TEXT_BYTES_MAX, ConfigMapKeyRef, TextSource, check_text
from agentrun.spec.errors import ManifestError, Problem
from agentrun.spec.run import AgentRunSpec

CONFIG_DIR_VARIABLE = "AGENTRUN_CONFIG_DIR"


def resolve_texts(spec: AgentRunSpec, config_dir: Path | None, *, source: str = "") -> AgentRunSpec:
    """The spec with every referenced text inlined, read from `<config_dir>/<name>/<key>`.

    Raises ManifestError naming each field whose file is missing or unfit.
    """
    reader = _Reader(config_dir)
    changes: dict[str, Any] = {}
    if spec.prompt_from is not None:
        changes |= {"prompt": reader.read(spec.prompt_from, "spec.promptFrom"), "prompt_from": None}
    if spec.agent is not None:
        changes["agent"] = _with_instructions(spec.agent, reader, "spec.agent")
    changes["agents"] = tuple(
        _with_instructions(agent, reader, f"spec.agents[{index}]") for index, agent in enumerate(spec.agents)
    )
    if reader.problems:
        raise ManifestError(reader.problems, source=source)
    return spec.model_copy(update=changes)


def _with_instructions(agent: AgentSpec, reader: _Reader, path: str) -> AgentSpec:
    if agent.instructions_from is None:
        return agent
    text = reader.read(agent.instructions_from, f"{path}.instructionsFrom")
    return agent.model_copy(update={"instructions": text, "instructions_from": None})


class _Reader:
    """Reads referenced texts and gathers what is wrong with them."""

    def __init__(self, config_dir: Path | None) -> None:
        self._config_dir = config_dir
        self.problems: list[Problem] = []

    def read(self, source: TextSource, path: str) -> str:
        ref = source.config_map_key_ref
        try:
            return check_text(self._content(ref))
        except ValueError as error:
            field = f"{path}.configMapKeyRef"
            self.problems.append(Problem(field, f"key '{ref.key}' of ConfigMap '{ref.name}' {error}"))
            return ""

    def _content(self, ref: ConfigMapKeyRef) -> str:
        if self._config_dir is None:
            raise ValueError(
                f"cannot be read: set {CONFIG_DIR_VARIABLE} to the folder that holds {ref.name}/{ref.key}"
            )
        file = self._config_dir / ref.name / ref.key
        try:
            with file.open("rb") as stream:
                data = stream.read(TEXT_BYTES_MAX + 1)
        except OSError as error:
            raise ValueError(f"cannot be read: {file}: {error.strerror}") from error
        if len(data) > TEXT_BYTES_MAX:
            raise ValueError(f"must be at most {TEXT_BYTES_MAX} bytes of UTF-8, and {file} has more")
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"must be UTF-8, and byte {error.start + 1} of {file} is not") from error
