"""Fixtures for all tests. Unit tests use none that starts something."""

from __future__ import annotations

from tests.support.postgres import make_database, postgres

__all__ = ["make_database", "postgres"]
