"""What counts as trouble with the servers, which loops survive: everything that the libraries raise for it."""

import inspect
from types import ModuleType

import aio_pika.exceptions
import aiormq.exceptions
import asyncpg
import pytest

from shared.amqp import BROKER_TROUBLE
from shared.db.pool import DATABASE_TROUBLE


@pytest.mark.parametrize("module", [aiormq.exceptions, aio_pika.exceptions])
def test_every_error_of_the_broker_libraries_is_trouble_with_the_broker(module: ModuleType) -> None:
    errors = [error for _, error in inspect.getmembers(module, inspect.isclass) if issubclass(error, Exception)]
    assert len(errors) > 10
    assert [error.__name__ for error in errors if not issubclass(error, BROKER_TROUBLE)] == []


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.AdminShutdownError,
        asyncpg.CrashShutdownError,
        asyncpg.CannotConnectNowError,
        asyncpg.ConnectionDoesNotExistError,
        asyncpg.TooManyConnectionsError,
        asyncpg.DeadlockDetectedError,
        asyncpg.SerializationError,
        asyncpg.LockNotAvailableError,
        asyncpg.QueryCanceledError,
        asyncpg.DiskFullError,
        asyncpg.IdleInTransactionSessionTimeoutError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
        ConnectionRefusedError,
        TimeoutError,
    ],
)
def test_a_database_that_is_away_or_too_busy_is_trouble_with_the_database(error: type[Exception]) -> None:
    assert issubclass(error, DATABASE_TROUBLE)


@pytest.mark.parametrize("error", [asyncpg.UniqueViolationError, asyncpg.PostgresSyntaxError, ValueError, KeyError])
def test_our_own_mistakes_are_not(error: type[Exception]) -> None:
    assert not issubclass(error, DATABASE_TROUBLE)
    assert not issubclass(error, BROKER_TROUBLE)
