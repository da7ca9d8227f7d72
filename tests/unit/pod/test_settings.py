"""A pod's settings: what is missing or bad is named by its variable."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrun.log.environment import SettingsError
from agentrun.pod.settings import LogSettings, log_settings, read

RUN_ID = "0b0e6a52-6f0f-4a8e-9f53-0b7c5a3f5e11"
GOOD = {
    "AGENTRUN_DATABASE_URL": "postgresql://agentrun:p%40ss-word@postgres:5432/agentrun",
    "AGENTRUN_RUN_ID": RUN_ID,
    "AGENTRUN_ATTEMPT": "3",
}


def test_what_is_not_said_has_its_default() -> None:
    settings = read(GOOD)
    assert str(settings.run_id) == RUN_ID
    assert settings.attempt == 3
    assert settings.grace_seconds == 30
    assert settings.config_dir is None
    assert settings.prepared_statements
    assert settings.pod_name  # the host's, which is the pod's


def test_what_is_said_counts() -> None:
    settings = read(
        GOOD
        | {
            "AGENTRUN_GRACE_SECONDS": "2.5",
            "AGENTRUN_POD_NAME": "hello-1",
            "AGENTRUN_NODE_NAME": "node-1",
            "AGENTRUN_CONFIG_DIR": "/etc/agentrun",
            "AGENTRUN_DATABASE_PREPARED_STATEMENTS": "false",
        }
    )
    assert settings.grace_seconds == 2.5
    assert settings.config_dir == Path("/etc/agentrun")
    assert not settings.prepared_statements
    assert settings.process == "pod hello-1 on node-1"


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("AGENTRUN_DATABASE_URL", "", "is empty"),
        ("AGENTRUN_DATABASE_URL", "mysql://u:secret@h/d", "must be a URL that begins with postgresql://"),
        ("AGENTRUN_DATABASE_URL", "postgresql://u:secret@h:port/d", "must be a URL"),
        ("AGENTRUN_DATABASE_LISTEN_URL", "u:secret@h", "must be a URL"),
        ("AGENTRUN_RUN_ID", " ", "is empty"),
        ("AGENTRUN_RUN_ID", "hello", "must be a UUID, not 'hello'"),
        ("AGENTRUN_ATTEMPT", "0", "must be a whole number from 1"),
        ("AGENTRUN_ATTEMPT", "-1", "must be a whole number from 1"),
        ("AGENTRUN_ATTEMPT", "1.5", "must be a whole number from 1"),
        ("AGENTRUN_ATTEMPT", "٣", "must be a whole number from 1"),
        ("AGENTRUN_GRACE_SECONDS", "0", "must be seconds"),
        ("AGENTRUN_GRACE_SECONDS", "inf", "must be seconds"),
        ("AGENTRUN_GRACE_SECONDS", "nan", "must be seconds"),
        ("AGENTRUN_GRACE_SECONDS", "30s", "must be seconds"),
        ("AGENTRUN_DATABASE_PREPARED_STATEMENTS", "maybe", "must be true or false"),
        ("AGENTRUN_BLOBS", "/var/blobs", "a pod's files go with the pod"),
        ("AGENTRUN_BLOBS", "folder:/var/blobs", "a pod's files go with the pod"),
        ("AGENTRUN_BLOBS", "file:///var/blobs", "a pod's files go with the pod"),
        ("AGENTRUN_BLOBS", "s3://bucket", "which this version has not"),
        ("AGENTRUN_LOG_FORMAT", "xml", "must be text or json"),
        ("AGENTRUN_LOG_LEVEL", "loud", "must be debug or info or warning or error"),
    ],
)
def test_what_is_bad_is_named_and_no_secret_is_shown(variable: str, value: str, says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(GOOD | {variable: value})
    (problem,) = caught.value.problems
    assert problem.startswith(variable + " ")
    assert says in problem
    assert "secret" not in problem


def test_all_that_is_missing_is_named_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        read({})
    assert caught.value.problems == [
        "AGENTRUN_DATABASE_URL is not set",
        "AGENTRUN_RUN_ID is not set",
        "AGENTRUN_ATTEMPT is not set",
    ]


def test_a_password_is_a_secret_as_it_is_written_and_as_it_is_meant() -> None:
    settings = read(GOOD)
    assert settings.passwords == ["p%40ss-word", "p@ss-word"]
    assert "ss-word" not in repr(settings)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, LogSettings()),
        (
            {"AGENTRUN_LOG_FORMAT": "JSON", "AGENTRUN_LOG_LEVEL": "Debug"},
            LogSettings(json=True, level="debug"),
        ),
        ({"AGENTRUN_LOG_FORMAT": "xml", "AGENTRUN_LOG_LEVEL": "loud"}, LogSettings()),
    ],
)
def test_how_lines_are_written_is_known_whatever_else_is_wrong(
    environ: dict[str, str], expected: LogSettings
) -> None:
    assert log_settings(environ) == expected
