"""The outbox: wake-ups are rows first, written in the transaction that makes them necessary, and messages second.

The relay locks rows, publishes them with confirms, deletes those that the broker has taken, and commits. A crash between confirm and
commit sends a wake-up twice, which is harmless. Any relay may send any row.
"""

import asyncio
from collections.abc import Collection
from pathlib import Path

import asyncpg
import structlog
from aio_pika import DeliveryMode, Message
from aio_pika.abc import AbstractChannel
from aio_pika.exceptions import DeliveryError, PublishError

from shared.amqp import BROKER_TROUBLE, Link, NotConnected
from shared.contracts.base import Contract
from shared.db.pool import DATABASE_TROUBLE, AnyConnection, Pool
from shared.db.queries import load_queries
from shared.failpoints import failpoint
from shared.ids import new_id
from shared.topology import QUEUE_OF_KIND, WAKE_UP_EXCHANGE, declare_wake_ups

log = structlog.get_logger()

SQL = load_queries(Path(__file__).with_name("outbox.sql"))

_POLL_SECONDS = 1.0
_BATCH = 100
_PUBLISH_SECONDS = 5.0


class UnknownKind(Exception):
    """A newer release wrote this row: one of its relays sends it."""


class OutboxRelay:
    """Publishes outbox rows. `nudge()` after a commit makes it look at once; a poll a second is the guarantee.

    `declares` are the queues that this process declares: those that it consumes as well. A row whose queue is missing waits.
    """

    def __init__(
        self,
        pool: Pool,
        rabbitmq_url: str,
        service: str,
        *,
        declares: Collection[str] = tuple(QUEUE_OF_KIND.values()),
    ) -> None:
        self._pool = pool
        self._declares = declares
        self._link = Link(rabbitmq_url, f"{service}.outbox", self._declare, confirms=True)
        self._wanted = asyncio.Event()

    def nudge(self) -> None:
        """Says that rows may be waiting; never blocks."""
        self._wanted.set()

    async def run(self) -> None:
        """Relays for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._link.run())
            group.create_task(self._relay_for_ever())

    async def _relay_for_ever(self) -> None:
        while True:
            await self._link.ready.wait()
            try:
                async with asyncio.timeout(_POLL_SECONDS):
                    await self._wanted.wait()
            except TimeoutError:
                pass  # the poll
            self._wanted.clear()
            try:
                while await self._relay_batch() == _BATCH:
                    pass
            except (*DATABASE_TROUBLE, *BROKER_TROUBLE, NotConnected) as error:
                _stay_cancelled()
                log.warning("outbox.delayed", cause=type(error).__name__)
                await asyncio.sleep(_POLL_SECONDS)

    async def _relay_batch(self) -> int:
        """Sends up to a batch of rows; returns how many the broker took."""
        async with self._pool.acquire() as connection, connection.transaction():
            rows = await connection.fetch(SQL["take_outbox"], _BATCH)
            if not rows:
                return 0
            channel = self._link.channel
            outcomes = await asyncio.gather(*(_publish(channel, row) for row in rows), return_exceptions=True)
            sent = [row["id"] for row, outcome in zip(rows, outcomes, strict=True) if outcome is None]
            failpoint("outbox_confirmed")
            await connection.execute(SQL["delete_outbox"], sent)
        await self._mend(channel, [outcome for outcome in outcomes if outcome is not None])
        return len(sent)

    async def _mend(self, channel: AbstractChannel, failed: list[BaseException]) -> None:
        """Rows that were refused stay for the next poll. Raises what is worse than a refusal."""
        if not failed:
            return
        log.warning("outbox.refused", count=len(failed), cause=type(failed[0]).__name__)
        if any(isinstance(error, DeliveryError | PublishError) for error in failed):
            await self._declare(channel)  # a queue is gone: the next round finds it again
        for error in failed:
            if not isinstance(error, DeliveryError | PublishError | UnknownKind):
                raise error

    async def _declare(self, channel: AbstractChannel) -> None:
        await declare_wake_ups(channel, self._declares)


def _stay_cancelled() -> None:
    """A cancellation that meets a lost connection comes out as the error of the rollback; it must still end the relay."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def _publish(channel: AbstractChannel, row: asyncpg.Record) -> None:
    queue = QUEUE_OF_KIND.get(row["kind"])
    if queue is None:
        raise UnknownKind(row["kind"])
    message = Message(
        row["body"].encode(),
        content_type="application/json",
        delivery_mode=DeliveryMode.PERSISTENT,
        # One id a publish call: two calls in flight with the same id on one channel could swap their confirmations.
        message_id=str(new_id()),
        type=row["kind"],
    )
    exchange = await channel.get_exchange(WAKE_UP_EXCHANGE, ensure=False)
    await exchange.publish(message, routing_key=queue, mandatory=True, timeout=_PUBLISH_SECONDS)


async def add_to_outbox(connection: AnyConnection, kind: str, subject_id: object, message: Contract) -> None:
    """Writes a wake-up; call it inside the transaction that makes it necessary, and `nudge()` the relay after the commit."""
    await connection.execute(SQL["add_outbox"], kind, subject_id, message.model_dump_json())
