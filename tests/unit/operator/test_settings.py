"""What the operator is told by its environment."""

from __future__ import annotations

import pytest

from agentrun.log.environment import SettingsError
from agentrun_operator.cli import main
from agentrun_operator.settings import RolloutPolicy, read

ENVIRON = {
    "AGENTRUN_DATABASE_URL": "postgresql://user:hunter2@db/agentrun",
    "AGENTRUN_RUNNER_IMAGE": "runner:1",
}


def test_two_settings_are_needed_and_the_rest_has_defaults() -> None:
    settings = read(ENVIRON)
    assert (settings.installation, settings.pods.image) == ("agentrun", "runner:1")
    assert (settings.rollout, settings.namespaces) == (RolloutPolicy.ON_NEXT_START, ())
    assert "hunter2" not in repr(settings)


def test_every_setting_can_be_said() -> None:
    more = {
        "AGENTRUN_INSTALLATION": "blue",
        "AGENTRUN_NAMESPACES": "a, b",
        "AGENTRUN_RUNNER_IMAGE_PULL_POLICY": "Always",
        "AGENTRUN_RUNNER_IMAGE_PULL_SECRETS": "reg",
        "AGENTRUN_RUNNER_SECRET_NAME": "store",
        "AGENTRUN_RUNNER_SECRET_KEY": "dsn",
        "AGENTRUN_RUNNER_RESOURCES": '{"requests": {"cpu": 1}}',
        "AGENTRUN_RUNNER_ENV": '{"AGENTRUN_LOG_FORMAT": "json"}',
        "AGENTRUN_ROLLOUT_POLICY": "Immediate",
        "AGENTRUN_ROLLOUT_MAX_UNAVAILABLE": "3",
        "AGENTRUN_DATABASE_PREPARED_STATEMENTS": "false",
        "AGENTRUN_LOST_NODE_SECONDS": "2.5",
        "AGENTRUN_LOG_FORMAT": "json",
    }
    settings = read(ENVIRON | more)
    assert settings.owner_prefix == "blue/" and settings.namespaces == ("a", "b")
    assert settings.pods.image_pull_policy == "Always" and settings.pods.image_pull_secrets == ("reg",)
    assert (settings.pods.store_secret_name, settings.pods.store_secret_key) == ("store", "dsn")
    assert settings.pods.resources == {"requests": {"cpu": "1"}}
    assert (settings.rollout, settings.rollout_unavailable_max) == (RolloutPolicy.IMMEDIATE, 3)
    assert (settings.prepared_statements, settings.log_json) == (False, True)
    assert settings.times.lost_node == 2.5


def test_all_bad_settings_are_named_at_once_and_no_value_that_is_secret(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad = {
        "AGENTRUN_DATABASE_URL": "mysql://user:hunter2@db/x",
        "AGENTRUN_INSTALLATION": "a/b",
        "AGENTRUN_WORKERS": "many",
        "AGENTRUN_RUNNER_ENV": "[]",
        "AGENTRUN_ROLLOUT_POLICY": "Never",
    }
    with pytest.raises(SettingsError) as error:
        read(bad)
    named = [problem.split()[0] for problem in error.value.problems]
    assert sorted(named) == sorted([*bad, "AGENTRUN_RUNNER_IMAGE"])
    assert main([], bad) == 2
    said = capsys.readouterr().err
    assert "AGENTRUN_RUNNER_IMAGE is not set" in said and "hunter2" not in said


@pytest.mark.parametrize("name", ["local", "server"])
def test_an_installation_is_not_named_like_the_owners_of_runs_of_no_object(name: str) -> None:
    with pytest.raises(SettingsError) as error:
        read(ENVIRON | {"AGENTRUN_INSTALLATION": name})
    assert error.value.problems == [
        f"AGENTRUN_INSTALLATION must not be '{name}': runs of no object have that owner"
    ]
