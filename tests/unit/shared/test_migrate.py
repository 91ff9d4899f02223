"""The migrator's words when it can't start."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import sqlalchemy.exc

from shared.db import migrate


def test_no_address_at_all(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    assert migrate.main() == 2
    assert capsys.readouterr().err == "DATABASE_URL is not set\n"


@pytest.mark.parametrize("address", ["mysql://u:hunter2@127.0.0.1/chatmind", "hunter2", "sqlite:///:memory:"])
def test_an_address_of_something_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], address: str
) -> None:
    monkeypatch.setenv("DATABASE_URL", address)
    assert migrate.main() == 1
    errors = capsys.readouterr().err
    assert "DATABASE_URL" in errors
    assert "postgresql://" in errors
    assert "hunter2" not in errors


@pytest.mark.parametrize(
    ("error", "cause", "remedy"),
    [
        (sqlalchemy.exc.NotSupportedError, 'extension "vector" is not available', "Install pgvector"),
        (sqlalchemy.exc.ProgrammingError, 'permission denied to create extension "vector"', "Let a superuser run"),
        (sqlalchemy.exc.OperationalError, "connection refused", "is PostgreSQL running?"),
    ],
)
def test_each_cause_has_its_remedy(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Callable[..., Exception],
    cause: str,
    remedy: str,
) -> None:
    def begin() -> None:
        raise error("SELECT 1", {}, Exception(cause))

    engine = SimpleNamespace(begin=begin, dispose=lambda: None)
    monkeypatch.setattr(sqlalchemy, "create_engine", lambda _url: engine)
    monkeypatch.setenv("DATABASE_URL", "postgresql://127.0.0.1/chatmind")

    assert migrate.main() == 1
    errors = capsys.readouterr().err
    assert cause in errors
    assert remedy in errors
