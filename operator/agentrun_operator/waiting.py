"""Why a pod does not start, in the words of a run's status. Pure.

Who calls: `plan_live`. What holds: what is missing is named by what it is (a Secret, a
ConfigMap, room), and an ordinary start is no reason at all.
"""

from __future__ import annotations

import re

from agentrun_operator.pods import Pod, Waiting
from agentrun_operator.podspec import PodSettings

STARTING = "Starting"
_ORDINARY = frozenset({"", "ContainerCreating", "PodInitializing"})
_SECRET = re.compile(r'secret "([^"]+)" not found|in Secret [^/ ]+/(\S+)', re.IGNORECASE)
_CONFIG_MAP = re.compile(r'configmap "[^"]+" not found|in ConfigMap |configmap references non', re.IGNORECASE)


def waiting_view(pod: Pod, trouble: Waiting | None, settings: PodSettings) -> Waiting:
    """The reason and the message. `trouble`: what the pod's Events say, where that was read."""
    found = pod.waiting
    if found is None or found.reason in _ORDINARY:
        if trouble is None:
            return Waiting(reason=STARTING)
        found = trouble
    if found.reason in ("CreateContainerConfigError", "FailedMount"):
        return Waiting(reason=_missing(found, settings), message=found.message)
    return Waiting(reason=reason_word(found.reason), message=found.message)


def _missing(found: Waiting, settings: PodSettings) -> str:
    secret = _SECRET.search(found.message)
    if secret is not None:
        name = secret[1] or secret[2]
        return "StoreSecretMissing" if name == settings.store_secret_name else "SecretMissing"
    if _CONFIG_MAP.search(found.message):
        return "ConfigMapMissing"
    return found.reason


def reason_word(text: str) -> str:
    """A reason as conditions take it: one word that begins with a letter."""
    word = re.sub(r"[^A-Za-z0-9_,:]", "", text)[:256].strip("_,:").lstrip("0123456789")
    return word or "Unknown"
