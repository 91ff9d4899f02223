"""A gateway on a fresh database, and clients of two tenants."""

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.support.api import RunningGateway


@pytest.fixture
async def gateway(database_url: str, rabbitmq_url: str) -> AsyncIterator[RunningGateway]:
    running = RunningGateway(database_url, rabbitmq_url, search_seconds=0.3, probe_seconds=0.2)
    await running.start()
    yield running
    await running.stop()


@pytest.fixture
async def client(gateway: RunningGateway) -> httpx.AsyncClient:
    return await gateway.client("first")


@pytest.fixture
async def stranger(gateway: RunningGateway) -> httpx.AsyncClient:
    """A client of another tenant."""
    return await gateway.client("second")
