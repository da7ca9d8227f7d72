"""What the API server's refusal to make a pod means. Pure.

Who calls: `apply`. What holds: only what can never change ends a run; everything else
waits, says why in status, and is tried again, at a pace that suits its cause.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """`retry`: seconds to the next try; 0: at once, None: never. `stalled`: waiting alone will not help."""

    reason: str
    message: str = ""
    retry: float | None = 30.0
    stalled: bool = False


QUOTA = "ExceededQuota"
WEBHOOK_RETRY_SECONDS = 5.0
POLICY_RETRY_SECONDS = 60.0
INVALID_RETRY_SECONDS = 300.0
_SAYS_NO = re.compile(r"denied (the )?request|violates PodSecurity")
"""A webhook, a ValidatingAdmissionPolicy (with code 422), Pod Security."""


def refusal_of(status: int, body: str, *, quota_retry: float) -> Refusal | None:
    """What an HTTP answer to the creation of a pod means; None: the server is in trouble, not the pod."""
    answer = _parse(body)
    message = str(answer.get("message") or body or f"HTTP {status}")
    causes = _causes(answer)
    if status == 409:
        return Refusal(reason="Conflict", message=message, retry=0.0)
    if "NamespaceTerminating" in causes or "because it is being terminated" in message:
        return Refusal(reason="NamespaceTerminating", message=message, retry=None)
    if "exceeded quota" in message:
        return Refusal(reason=QUOTA, message=message, retry=quota_retry)
    if "failed calling webhook" in message:
        return Refusal(reason="WebhookUnavailable", message=message, retry=WEBHOOK_RETRY_SECONDS)
    if "error looking up service account" in message:
        return Refusal(reason="ServiceAccountMissing", message=message, retry=WEBHOOK_RETRY_SECONDS)
    if _SAYS_NO.search(message):
        return Refusal(reason="PolicyDenied", message=message, retry=POLICY_RETRY_SECONDS)
    if status == 404:
        return Refusal(reason="NamespaceMissing", message=message, retry=None)
    if status == 403 and message.startswith('pods "') and "cannot create resource" not in message:
        # An admission plugin of the server's own: a LimitRange, a quota that asks for amounts, …
        return Refusal(reason="PolicyDenied", message=message, retry=POLICY_RETRY_SECONDS)
    if status == 403:
        return Refusal(reason="Forbidden", message=message, retry=POLICY_RETRY_SECONDS)
    if status in (400, 413, 422):
        return Refusal(reason="InvalidPod", message=message, retry=INVALID_RETRY_SECONDS, stalled=True)
    return None


def _parse(body: str) -> Mapping[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, Mapping) else {}


def _causes(answer: Mapping[str, Any]) -> set[str]:
    details = answer.get("details")
    causes = details.get("causes") if isinstance(details, Mapping) else None
    found = causes if isinstance(causes, list) else []
    return {str(cause.get("reason")) for cause in found if isinstance(cause, Mapping)}
