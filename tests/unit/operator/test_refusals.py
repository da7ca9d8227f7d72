"""What the API server's refusal of a pod means."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentrun_operator.refusals import Refusal, refusal_of


def answer(code: int, message: str, reason: str = "", **details: Any) -> tuple[int, str]:
    return code, json.dumps({"code": code, "message": message, "reason": reason, "details": details})


QUOTA = 'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2'
REFUSALS: dict[str, tuple[tuple[int, str], str, float | None]] = {
    "over quota": (answer(403, QUOTA), "ExceededQuota", 15.0),
    "the quota is being written": (
        answer(409, 'Operation cannot be fulfilled on resourcequotas "q": the object has been modified'),
        "Conflict",
        0.0,
    ),
    "a webhook is away": (
        answer(500, 'failed calling webhook "inj.example.test": context deadline exceeded'),
        "WebhookUnavailable",
        5.0,
    ),
    "a webhook says no": (
        answer(403, 'admission webhook "v.example.test" denied the request: image not signed'),
        "PolicyDenied",
        60.0,
    ),
    "a webhook says no in its own way": (
        answer(400, 'admission webhook "v.example.test" denied the request: no'),
        "PolicyDenied",
        60.0,
    ),
    "pod security": (
        answer(403, 'pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot'),
        "PolicyDenied",
        60.0,
    ),
    "an admission policy says no": (
        answer(
            422,
            "pods \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied request: "
            "image not signed",
        ),
        "PolicyDenied",
        60.0,
    ),
    "a LimitRange says no": (
        answer(
            403,
            'pods "x" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi',
            "Forbidden",
        ),
        "PolicyDenied",
        60.0,
    ),
    "the namespace goes": (
        answer(
            403,
            'pods "x" is forbidden: unable to create new content in namespace demo because it is being '
            "terminated",
            causes=[{"reason": "NamespaceTerminating"}],
        ),
        "NamespaceTerminating",
        None,
    ),
    "the namespace is gone": (answer(404, 'namespaces "demo" not found'), "NamespaceMissing", None),
    "no service account yet": (
        answer(403, "error looking up service account demo/default: serviceaccount not found"),
        "ServiceAccountMissing",
        5.0,
    ),
    "more than the quota can ever hold": (
        answer(
            403,
            'pods "x" is forbidden: exceeded quota: q, requested: requests.memory=2Gi, used: '
            "requests.memory=0, limited: requests.memory=1Gi",
        ),
        "ExceededQuota",
        15.0,
    ),
    "a quota that asks for amounts": (
        answer(403, 'pods "x" is forbidden: failed quota: q: must specify limits.cpu for: runner'),
        "PolicyDenied",
        60.0,
    ),
    "a limit range": (
        answer(403, 'pods "x" is forbidden: maximum memory usage per Container is 512Mi, but limit is 1Gi'),
        "PolicyDenied",
        60.0,
    ),
    "a webhook has no pods": (
        answer(
            500,
            'Internal error occurred: failed calling webhook "inj.example.test": failed to call webhook: '
            'Post "https://inj.mesh.svc:443/?timeout=10s": no endpoints available for service "inj"',
        ),
        "WebhookUnavailable",
        5.0,
    ),
    "no right": (answer(403, 'pods is forbidden: User "x" cannot create resource "pods"'), "Forbidden", 60.0),
    "no right to pods of this name": (
        answer(403, 'pods "x" is forbidden: User "x" cannot create resource "pods" in API group ""'),
        "Forbidden",
        60.0,
    ),
    "no such pod can be": (answer(422, "spec.containers[0].image: Required value"), "InvalidPod", 300.0),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_has_a_reason_a_pace_and_the_servers_words(name: str) -> None:
    (code, body), reason, retry = REFUSALS[name]
    refusal = refusal_of(code, body, quota_retry=15.0)
    assert refusal is not None
    assert (refusal.reason, refusal.retry) == (reason, retry)
    assert refusal.message == json.loads(body)["message"]
    assert refusal.stalled is (reason == "InvalidPod")


@pytest.mark.parametrize("body", ["", "no JSON", "[]", '{"details": 3}', '{"details": {"causes": [null]}}'])
def test_any_body_gives_an_answer(body: str) -> None:
    refusal = refusal_of(403, body, quota_retry=1.0)
    assert refusal == Refusal(reason="Forbidden", message=body or "HTTP 403", retry=60.0)


def test_a_server_in_trouble_is_no_refusal() -> None:
    assert refusal_of(500, "etcd is away", quota_retry=1.0) is None
    assert refusal_of(401, "", quota_retry=1.0) is None
