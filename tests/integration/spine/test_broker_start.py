"""A broker that refuses a consumer at first is asked again."""

import asyncio

import aio_pika
import pytest
from aiormq.exceptions import ConnectionInternalError

from shared.contracts.commands import ExecuteRun
from shared.ids import new_id
from shared.service import consumer_check, make_broker
from shared.settings import CommonSettings
from shared.topology import RUNS
from shared.wake_ups import subscribe_to_wake_ups


class Intake:
    """Notes that there may be work."""

    stopping = False

    def __init__(self, woken: asyncio.Event) -> None:
        self._woken = woken

    def nudge(self) -> None:
        self._woken.set()

    async def wait_for_room(self, within: float) -> None:
        assert within > 0


async def test_a_consumer_that_is_refused_at_first_takes_messages_in_the_end(
    rabbitmq_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken = asyncio.Event()
    settings = CommonSettings.model_validate(
        {"DATABASE_URL": "postgresql://nobody@127.0.0.1/none", "RABBITMQ_URL": rabbitmq_url}
    )
    broker = make_broker(settings, "test", apply_types=False)
    subscribe_to_wake_ups(broker, RUNS, ExecuteRun, Intake(woken))
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
            command = ExecuteRun(tenant_id=new_id(), session_id=new_id(), run_id=new_id())
            message = aio_pika.Message(command.model_dump_json().encode())
            await channel.default_exchange.publish(message, routing_key=RUNS)
            await asyncio.wait_for(woken.wait(), 10)
    finally:
        await broker.stop()
