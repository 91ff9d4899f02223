"""The outbox on real PostgreSQL and RabbitMQ: no row is lost, whatever happens to queues and relays."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from uuid import UUID

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

from shared import outbox
from shared.contracts.commands import ExecuteRun
from shared.db.pool import Pool
from shared.ids import new_id
from shared.outbox import OutboxRelay, add_to_outbox
from shared.service import background
from shared.topology import RUNS, declare_all, declare_wake_ups, kind_of
from tests.support.stack import Stack
from tests.support.waiting import eventually


@pytest.fixture
async def channel(rabbitmq_url: str) -> AsyncIterator[AbstractChannel]:
    """A channel on declared, empty queues."""
    async with await aio_pika.connect(rabbitmq_url) as connection:
        channel = await connection.channel()
        await declare_all(channel)
        await (await channel.get_queue(RUNS)).purge()
        yield channel


async def write_rows(pool: Pool, count: int, kind: str = "ExecuteRun") -> list[UUID]:
    """Rows as a service writes them; the runs that they wake."""
    commands = [ExecuteRun(tenant_id=new_id(), session_id=new_id(), run_id=new_id()) for _ in range(count)]
    async with pool.acquire() as connection, connection.transaction():
        for command in commands:
            await add_to_outbox(connection, kind, command.run_id, command)
    return [command.run_id for command in commands]


def rows_left(pool: Pool, count: int) -> Callable[[], Awaitable[bool]]:
    async def as_many_as_that() -> bool:
        return bool(await pool.fetchval("SELECT count(*) FROM outbox") == count)

    return as_many_as_that


async def received(channel: AbstractChannel) -> list[AbstractIncomingMessage]:
    """Everything that waits in the queue of runs."""
    queue = await channel.get_queue(RUNS)
    messages = []
    while (message := await queue.get(no_ack=True, fail=False)) is not None:
        messages.append(message)
    return messages


def runs_of(messages: list[AbstractIncomingMessage]) -> list[UUID]:
    return [ExecuteRun.model_validate_json(message.body).run_id for message in messages]


async def test_rows_become_persistent_messages_and_go(pool: Pool, rabbitmq_url: str, channel: AbstractChannel) -> None:
    assert kind_of(ExecuteRun(tenant_id=new_id(), session_id=new_id(), run_id=new_id())) == "ExecuteRun"
    relay = OutboxRelay(pool, rabbitmq_url, "test")
    async with background([relay.run]):
        runs = await write_rows(pool, 250)  # more than a batch
        relay.nudge()
        await eventually(rows_left(pool, 0))

    messages = await received(channel)
    assert runs_of(messages) == runs
    assert {message.delivery_mode for message in messages} == {aio_pika.DeliveryMode.PERSISTENT}
    assert {message.type for message in messages} == {"ExecuteRun"}


async def test_a_row_is_found_without_a_nudge(pool: Pool, rabbitmq_url: str, channel: AbstractChannel) -> None:
    async with background([OutboxRelay(pool, rabbitmq_url, "test").run]):
        runs = await write_rows(pool, 1)
        await eventually(rows_left(pool, 0))
    assert runs_of(await received(channel)) == runs


async def test_rows_of_an_open_transaction_are_not_sent(
    pool: Pool, rabbitmq_url: str, channel: AbstractChannel
) -> None:
    relay = OutboxRelay(pool, rabbitmq_url, "test")
    async with background([relay.run]), pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        command = ExecuteRun(tenant_id=new_id(), session_id=new_id(), run_id=new_id())
        await add_to_outbox(connection, "ExecuteRun", command.run_id, command)
        later = await write_rows(pool, 1)
        relay.nudge()
        await eventually(rows_left(pool, 0))
        await transaction.rollback()
    assert runs_of(await received(channel)) == later


async def test_a_deleted_queue_is_declared_again(
    stack: Stack, pool: Pool, rabbitmq_url: str, channel: AbstractChannel
) -> None:
    relay = OutboxRelay(pool, rabbitmq_url, "test")
    async with background([relay.run]):
        before = await write_rows(pool, 1)
        relay.nudge()
        await eventually(rows_left(pool, 0))
        assert runs_of(await received(channel)) == before
        await (await channel.get_queue(RUNS)).delete(if_unused=False, if_empty=False)

        after = await write_rows(pool, 3)
        relay.nudge()
        await eventually(rows_left(pool, 0))
    assert sorted(runs_of(await received(channel))) == sorted(after)


async def test_two_relays_at_once(pool: Pool, rabbitmq_url: str, channel: AbstractChannel) -> None:
    runs = await write_rows(pool, 500)
    relays = [OutboxRelay(pool, rabbitmq_url, "test") for _ in range(2)]
    async with background([relay.run for relay in relays]):
        for relay in relays:
            relay.nudge()
        await eventually(rows_left(pool, 0))
    assert set(runs_of(await received(channel))) == set(runs)


async def test_what_the_broker_refuses_stays_and_holds_up_nobody(
    pool: Pool, rabbitmq_url: str, channel: AbstractChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "QUEUE_OF_KIND", {"ExecuteRun": RUNS, "Lost": "nowhere"})
    rounds: list[float] = []

    async def declare_and_count(channel: AbstractChannel, queues: Collection[str]) -> None:
        rounds.append(time.monotonic())
        await declare_wake_ups(channel, queues)

    monkeypatch.setattr(outbox, "declare_wake_ups", declare_and_count)
    relay = OutboxRelay(pool, rabbitmq_url, "test")
    await write_rows(pool, 1, "Lost")
    runs = await write_rows(pool, 2)
    async with background([relay.run]):
        relay.nudge()
        await eventually(rows_left(pool, 1))

        async def three_rounds() -> bool:
            return len(rounds) >= 3  # one at the connection, one for each refusal

        await eventually(three_rounds)
    assert await pool.fetchval("SELECT kind FROM outbox") == "Lost"
    assert runs_of(await received(channel)) == runs
    assert rounds[2] - rounds[1] > 0.5, "a refused row is tried at each poll, not in a busy loop"


async def test_a_row_of_a_newer_release_stays_and_holds_up_nobody(
    pool: Pool, rabbitmq_url: str, channel: AbstractChannel
) -> None:
    await write_rows(pool, 1, "FromTheFuture")
    relay = OutboxRelay(pool, rabbitmq_url, "test")
    async with background([relay.run]):
        relay.nudge()
        runs = await write_rows(pool, 2)
        await eventually(rows_left(pool, 1))
        runs += await write_rows(pool, 1)
        await eventually(rows_left(pool, 1))
    assert await pool.fetchval("SELECT kind FROM outbox") == "FromTheFuture"
    assert set(runs_of(await received(channel))) <= set(runs)
    assert len(runs) == 3


async def test_a_lost_connection_between_confirm_and_delete_sends_twice_and_loses_nothing(
    stack: Stack, pool: Pool, rabbitmq_url: str, channel: AbstractChannel
) -> None:
    """The relay's transaction is undone after the broker has taken the rows: the next round sends them again."""
    runs = await write_rows(pool, 5)
    relay = OutboxRelay(pool, rabbitmq_url, "test")
    async with pool.acquire() as blocker, blocker.transaction():
        # Deleting waits for this lock, publishing doesn't: rows of the outbox are referred to by nobody.
        await blocker.execute("LOCK TABLE outbox IN SHARE MODE")
        async with background([relay.run]):
            relay.nudge()

            async def delete_waits() -> bool:
                found = await pool.fetchval(
                    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
                )
                return bool(found and await pool.fetchval("SELECT pg_terminate_backend($1)", found))

            await eventually(delete_waits)
    async with background([relay.run]):
        relay.nudge()
        await eventually(rows_left(pool, 0))
    sent = runs_of(await received(channel))
    assert set(sent) == set(runs)
