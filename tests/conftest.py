"""Fixtures: a real PostgreSQL and RabbitMQ for the whole test session, a fresh database a test, a fresh virtual host a module."""

from collections.abc import AsyncIterator, Iterator

import pytest

from shared.db.pool import Pool, PoolSettings, open_pool
from tests.support.stack import Stack, start_stack


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
