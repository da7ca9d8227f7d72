"""Where the store is, and how it is named to people."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrun.local.errors import BadStore
from agentrun.local.stores import place_of, without_password


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://u:pw@h:5/d", "postgresql://u:***@h:5/d"),
        ("postgresql://u:p%40w:x@h/d?sslmode=require", "postgresql://u:***@h/d?sslmode=require"),
        ("postgres://u:a@b@h/d", "postgres://u:***@h/d"),
        ("postgresql://h/d?user=u&password=pw", "postgresql://h/d?user=u&password=***"),
        (
            "postgresql://agentrun@/agentrun?host=/tmp/s&port=5",
            "postgresql://agentrun@/agentrun?host=/tmp/s&port=5",
        ),
        ("postgresql://u:pw@[h/d", "the database"),
    ],
)
def test_no_password_is_shown(dsn: str, shown: str) -> None:
    assert without_password(dsn) == shown
    assert "pw" not in shown


def test_an_option_goes_before_the_environment() -> None:
    environ = {"AGENTRUN_DATABASE_URL": "postgresql://b/b"}
    with place_of("postgresql://a/a", environ) as place:
        assert place is not None and place.dsn == "postgresql://a/a"
    with place_of(None, environ) as place:
        assert place is not None and place.dsn == "postgresql://b/b"


@pytest.mark.parametrize("dsn", ["mysql://u:pw@h/d", "host=h password=pw", "postgresql://u:pw@h:port/d"])
def test_what_is_no_address_is_refused_without_repeating_it(dsn: str) -> None:
    with pytest.raises(BadStore) as refused, place_of(dsn, {}):
        pass
    assert "pw" not in str(refused.value)
    assert str(refused.value).startswith("--store")


def test_reading_makes_nothing_where_nothing_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTRUN_DATA_DIR", str(tmp_path / "none"))
    with place_of(None, {}, create=False) as place:
        assert place is None
    assert list(tmp_path.iterdir()) == []
