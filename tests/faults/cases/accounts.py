"""The accounts that services log in with: case 77."""

import asyncio
from random import Random

import aio_pika
import asyncpg
from aiormq.exceptions import ChannelAccessRefused

from deploy.local.accounts import SERVICES, account_name
from tests.faults.bed import Bed
from tests.faults.catalogue import case
from tests.faults.load import background_load
from tests.faults.tally import Tally
from tests.integration.accounts.test_accounts import (
    BROKER_OF_EVERY_SERVICE,
    BROKER_OF_ONE,
    OF_EVERY_SERVICE,
    OF_ONE,
)
from tests.support.accounts import account_environment

_LOGINS = "SELECT DISTINCT usename::text AS name FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


@case(77, "Each service's account tries what it must not, beside the running system")
async def accounts(bed: Bed, rng: Random, trials: int) -> Tally:
    """Both servers refuse; services use no other accounts, and all that they must do they can."""
    tally = Tally()
    async with background_load(bed, rng, tally, sessions=4):
        expected = {account_name(service) for service in SERVICES}
        tally.require(
            await _database_logins(bed) == expected, f"logged in at the database: {await _database_logins(bed)}"
        )
        tally.require(await _broker_logins(bed) == expected, f"logged in at the broker: {await _broker_logins(bed)}")
        for _ in range(trials):
            for service in SERVICES:
                urls = account_environment(bed.stack, service, bed.database_url, bed.environment["RABBITMQ_URL"])
                await _try_statements(service, urls["DATABASE_URL"], tally)
                await _try_the_broker(service, urls["RABBITMQ_URL"], tally)
    return tally


async def _database_logins(bed: Bed) -> set[str]:
    return {row["name"] for row in await bed.fetch(_LOGINS)}


async def _broker_logins(bed: Bed) -> set[str]:
    listed = await asyncio.to_thread(bed.stack.rabbitmq.ctl, "list_connections", "--no-table-headers", "user", "vhost")
    rows = (line.split("\t") for line in listed.splitlines())
    return {user for user, vhost in rows if vhost == bed.vhost}


async def _try_statements(service: str, url: str, tally: Tally) -> None:
    connection = await asyncpg.connect(url)
    try:
        for what, statement in {**OF_EVERY_SERVICE, **OF_ONE[service]}.items():
            tally.attempted += 1
            transaction = connection.transaction()
            await transaction.start()
            try:
                await connection.execute(statement)
                tally.surprise(f"{service} may {what}")
            except asyncpg.InsufficientPrivilegeError:
                tally.acknowledged += 1
                tally.ok += 1
            except asyncpg.PostgresError as error:
                tally.surprise(f"{service}, {what}: {error}")
            finally:
                await transaction.rollback()
    finally:
        await connection.close()


async def _try_the_broker(service: str, url: str, tally: Tally) -> None:
    async with await aio_pika.connect(url) as connection:
        for what, attempt in {**BROKER_OF_EVERY_SERVICE, **BROKER_OF_ONE[service]}.items():
            tally.attempted += 1
            channel = await connection.channel(on_return_raises=True)
            try:
                await attempt(channel)
                tally.surprise(f"{service} may {what}")
            except ChannelAccessRefused:
                tally.acknowledged += 1
                tally.ok += 1
