"""Looking at every message that is published in a virtual host, by RabbitMQ's own tracing; and publishing what nobody should."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

from tests.faults.bed import Bed


@dataclass(frozen=True, slots=True)
class Published:
    """A message on its way in. `persistent` is delivery mode 2."""

    exchange: str
    routing_key: str
    persistent: bool
    size: int
    body: bytes


@asynccontextmanager
async def broker_channel(bed: Bed) -> AsyncIterator[AbstractChannel]:
    """A channel with all rights."""
    async with await aio_pika.connect(bed.environment["RABBITMQ_URL"]) as connection:
        yield await connection.channel(publisher_confirms=True, on_return_raises=False)


@asynccontextmanager
async def tapped(bed: Bed) -> AsyncIterator[list[Published]]:
    """Everything that is published during the block."""
    ctl = bed.stack.rabbitmq.ctl
    seen: list[Published] = []
    async with broker_channel(bed) as channel:
        exchange = await channel.get_exchange("amq.rabbitmq.trace", ensure=False)
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(exchange, "publish.#")

        async def take(message: AbstractIncomingMessage) -> None:
            seen.append(_published(message))

        await queue.consume(take, no_ack=True)
        await asyncio.to_thread(ctl, "trace_on", "--vhost", bed.vhost)
        try:
            yield seen
        finally:
            await asyncio.to_thread(ctl, "trace_off", "--vhost", bed.vhost)


def _published(message: AbstractIncomingMessage) -> Published:
    headers: dict[str, Any] = dict(message.headers)
    properties, keys = headers["properties"], headers["routing_keys"]
    return Published(
        exchange=str(headers["exchange_name"]),
        routing_key=_text(keys[0]) if keys else "",
        persistent=properties.get("delivery_mode") == 2,
        size=len(message.body),
        body=message.body,
    )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


async def publish(channel: AbstractChannel, queue: str, body: bytes, **headers: Any) -> None:
    """Puts a message into a queue."""
    message = aio_pika.Message(body, headers=headers, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
    await channel.default_exchange.publish(message, routing_key=queue)


async def depth(channel: AbstractChannel, queue: str) -> int:
    """Messages that are ready in a queue, now."""
    declared = await channel.declare_queue(queue, passive=True)
    return declared.declaration_result.message_count or 0
