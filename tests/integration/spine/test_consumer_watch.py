"""A consumer that is gone though the connection lives: /readyz is red, and it is back within 10 s with messages flowing."""

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel
from faststream.rabbit import RabbitBroker, RabbitMessage

from shared.service import ConsumerWatch, background, consumer_check, make_broker
from shared.settings import CommonSettings
from shared.topology import DOCUMENTS, QUESTIONS, RUNS, consumer_channel, undecoded, wake_up_queue
from tests.support.stack import ServiceProcess, Stack
from tests.support.waiting import eventually

BACK_WITHIN = 10.0

MODELS = """
[chat.none]
base_url = "http://127.0.0.1:9/v1"
model = "none"
default = true

[embedding.none]
base_url = "http://127.0.0.1:9/v1"
model = "none"
dimension = 8
default = true
"""


@pytest.fixture
async def channel(rabbitmq_url: str) -> AsyncIterator[AbstractChannel]:
    """The operator's channel."""
    async with await aio_pika.connect(rabbitmq_url) as connection:
        yield await connection.channel()


@pytest.fixture
async def consumer(rabbitmq_url: str) -> AsyncIterator[tuple[RabbitBroker, "asyncio.Queue[bytes]"]]:
    """A broker that consumes wake-ups for runs, and what it took."""
    values = {"DATABASE_URL": "postgresql://nobody@127.0.0.1/none", "RABBITMQ_URL": rabbitmq_url}
    broker = make_broker(CommonSettings.model_validate(values), "test", apply_types=False)
    taken: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(message: RabbitMessage) -> None:
        await taken.put(message.body)

    broker.subscriber(wake_up_queue(RUNS), channel=consumer_channel(1), decoder=undecoded, no_reply=True)(take)
    await broker.start()
    yield broker, taken
    await broker.stop()


async def lose_by_cancellation(broker: RabbitBroker, _channel: AbstractChannel) -> None:
    """The broker has no consumer any more, and no library has been told."""
    queue, tag = _consumer_of(broker)
    await (await queue.channel.get_underlay_channel()).basic_cancel(tag)


async def lose_by_deletion(_broker: RabbitBroker, channel: AbstractChannel) -> None:
    await channel.queue_delete(RUNS)


async def lose_by_a_closed_channel(broker: RabbitBroker, _channel: AbstractChannel) -> None:
    """As after an error of the channel, which the library can't open again."""
    queue, _ = _consumer_of(broker)
    await queue.channel.close()


def _consumer_of(broker: RabbitBroker) -> tuple[Any, str]:
    subscriber: Any = broker.subscribers[0]
    return subscriber._queue_obj, subscriber._consumer_tag


@pytest.mark.parametrize("lose", [lose_by_cancellation, lose_by_deletion, lose_by_a_closed_channel])
async def test_a_lost_consumer_is_noticed_and_comes_back(
    consumer: tuple[RabbitBroker, "asyncio.Queue[bytes]"], channel: AbstractChannel, lose: Any
) -> None:
    broker, taken = consumer
    check = consumer_check(broker)
    watch = ConsumerWatch(broker)
    assert await check()
    async with background([watch.run]):
        await lose(broker, channel)

        async def is_red() -> bool:
            return not await check()

        await eventually(is_red, within=2, every=0.005)
        lost_at = time.monotonic()
        await eventually(check, within=BACK_WITHIN)
        await channel.default_exchange.publish(aio_pika.Message(b"hello"), routing_key=RUNS)
        assert await asyncio.wait_for(taken.get(), BACK_WITHIN) == b"hello"
        assert time.monotonic() - lost_at < BACK_WITHIN


async def test_a_consumer_that_is_stopped_stays_stopped(
    consumer: tuple[RabbitBroker, "asyncio.Queue[bytes]"], channel: AbstractChannel
) -> None:
    """At the end of a process the watch must not bring back what was stopped on purpose, nor hold up the end."""
    broker, _ = consumer
    watch = ConsumerWatch(broker, patience=0)
    real_start, starting = broker.start, asyncio.Event()

    async def slow_start() -> None:
        starting.set()
        await asyncio.Event().wait()

    broker.start = slow_start  # type: ignore[method-assign]
    async with background([watch.run]):
        await lose_by_cancellation(broker, channel)
        await asyncio.wait_for(starting.wait(), 10)
        await asyncio.wait_for(watch.stop(), 2)
    broker.start = real_start  # type: ignore[method-assign]
    assert not broker.running


@pytest.mark.parametrize(
    ("module", "queue"),
    [
        ("services.agent_runner.main", RUNS),
        ("services.ingestion.main", DOCUMENTS),
        ("services.retrieval.main", QUESTIONS),
    ],
)
async def test_a_service_whose_queue_was_deleted(
    stack: Stack,
    database_url: str,
    rabbitmq_url: str,
    channel: AbstractChannel,
    tmp_path: Path,
    module: str,
    queue: str,
) -> None:
    models = tmp_path / "models.toml"
    models.write_text(MODELS)
    environment = {"DATABASE_URL": database_url, "RABBITMQ_URL": rabbitmq_url, "CHATMIND_MODELS_FILE": str(models)}
    process = stack.start_service(module, environment)
    try:
        process.wait_ready(60)
        await channel.queue_delete(queue)

        lost_at = time.monotonic()
        await eventually(partial(_consumes, rabbitmq_url, queue), within=BACK_WITHIN, every=0.2)
        await eventually(partial(_is_ready, process), within=BACK_WITHIN)
        assert time.monotonic() - lost_at < BACK_WITHIN
        await channel.default_exchange.publish(aio_pika.Message(b"not readable"), routing_key=queue)
        await eventually(partial(_is_empty, channel, queue), within=BACK_WITHIN)
    finally:
        process.kill()


async def _consumes(rabbitmq_url: str, queue: str) -> bool:
    """Whether the broker knows of a consumer; asked on a channel of its own, which a missing queue closes."""
    async with await aio_pika.connect(rabbitmq_url) as connection:
        try:
            declared = await (await connection.channel()).declare_queue(queue, passive=True)
        except aio_pika.exceptions.ChannelNotFoundEntity:
            return False
        return (declared.declaration_result.consumer_count or 0) == 1


async def _is_ready(process: ServiceProcess) -> bool:
    return await asyncio.to_thread(process.is_ready)


async def _is_empty(channel: AbstractChannel, queue: str) -> bool:
    declared = await channel.declare_queue(queue, passive=True)
    return declared.declaration_result.message_count == 0
