"""A broker that refuses a consumer at first is asked again."""

import asyncio

import aio_pika
import pytest
from aiormq.exceptions import ConnectionInternalError

from shared.service import consumer_check, make_broker
from shared.settings import CommonSettings
from shared.topology import RUNS
from shared.wake_ups import subscribe_to_wake_ups


async def test_a_consumer_that_is_refused_at_first_takes_messages_in_the_end(
    rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: asyncio.Queue[bytes] = asyncio.Queue()
    settings = CommonSettings.model_validate(
        {"DATABASE_URL": "postgresql://nobody@127.0.0.1/none", "RABBITMQ_URL": rabbitmq_url}
    )
    broker = make_broker(settings, "test", apply_types=False)
    subscribe_to_wake_ups(broker, RUNS, 1, taken.put)
    real_consume = aio_pika.RobustQueue.consume
    refusals = 2

    async def consume(queue: aio_pika.RobustQueue, *args: object, **kwargs: object) -> str:
        nonlocal refusals
        if refusals:
            refusals -= 1
            await queue.channel.close()
            raise ConnectionInternalError("INTERNAL_ERROR")
        return await real_consume(queue, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(aio_pika.RobustQueue, "consume", consume)
    await asyncio.wait_for(broker.start(), 20)
    try:
        assert refusals == 0
        assert await consumer_check(broker)()
        async with await aio_pika.connect(rabbitmq_url) as connection:
            channel = await connection.channel()
            await channel.default_exchange.publish(aio_pika.Message(b"hello"), routing_key=RUNS)
            assert await asyncio.wait_for(taken.get(), 10) == b"hello"
    finally:
        await broker.stop()
