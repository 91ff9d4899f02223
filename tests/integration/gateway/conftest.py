"""A gateway on a fresh database, and clients of two tenants."""

from collections.abc import AsyncIterator

import httpx
import pytest
import structlog

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


@pytest.fixture
async def quiet_gateway(database_url: str) -> AsyncIterator[RunningGateway]:
    """A gateway whose wake-ups stay in the outbox, where they can be counted; with small limits."""
    limits = {"file_bytes": 3 * 1024 * 1024, "upload_bytes": 5 * 1024 * 1024, "files": 3}
    running = RunningGateway(database_url, "amqp://127.0.0.1:1/", limits=limits)
    await running.start()
    yield running
    await running.stop()


@pytest.fixture
async def writer(quiet_gateway: RunningGateway) -> httpx.AsyncClient:
    return await quiet_gateway.client()


@pytest.fixture(scope="session", autouse=True)
def plain_logs() -> None:
    """Plain lines: rendering a traceback with its locals in a frame takes seconds."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(),
        ]
    )
