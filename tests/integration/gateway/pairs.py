"""Two gateways in this process on one database, and one tenant's client of each."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tests.support.api import RunningGateway

# Nothing answers here: what was accepted stays where it is.
NO_BROKER = "amqp://127.0.0.1:1/"


@asynccontextmanager
async def two_gateways(database_url: str, **settings: Any) -> AsyncIterator[tuple[RunningGateway, RunningGateway]]:
    """Two gateways on one database; nobody takes their work away."""
    first, second = (RunningGateway(database_url, NO_BROKER, **settings) for _ in range(2))
    async with asyncio.TaskGroup() as group:
        group.create_task(first.start())
        group.create_task(second.start())
    yield first, second
    for gateway in (first, second):
        await gateway.stop()


async def clients_of_both(gateways: tuple[RunningGateway, RunningGateway]) -> list[httpx.AsyncClient]:
    """One key at both gateways."""
    key = await gateways[0].issue_key("default")
    return [gateway.client_with(key) for gateway in gateways]
