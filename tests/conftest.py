"""Fixtures: a real PostgreSQL and RabbitMQ for the whole test session, a fresh database a test, a fresh virtual host a module."""

import signal
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from shared.db.pool import Pool, PoolSettings, open_pool
from tests.support.stack import Stack, start_stack

# A busy machine is slow; that says nothing about the code.
settings.register_profile("chatmind", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("chatmind")


def pytest_configure() -> None:
    """A session that is told to end takes its servers with it, as after Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """The two servers, on free ports, in a temporary folder."""
    stack = start_stack()
    yield stack
    stack.stop()


@pytest.fixture
def database_url(stack: Stack) -> Iterator[str]:
    """A fresh, migrated database."""
    url = stack.create_database()
    yield url
    stack.drop_database(url)


@pytest.fixture(scope="module")
def rabbitmq_url(stack: Stack) -> str:
    """A virtual host without queues at the module's start."""
    return stack.create_vhost()


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    """A pool on the test's own database, as services open it."""
    pool = await open_pool(database_url, "test", PoolSettings(max_size=20))
    yield pool
    await pool.close()
