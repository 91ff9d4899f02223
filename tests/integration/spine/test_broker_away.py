"""RabbitMQ is stopped and comes back, with everything that talks to it running."""

import asyncio
import time

import aio_pika
import pytest

from shared.contracts.commands import ExecuteRun
from shared.contracts.hints import StreamAdvanced
from shared.db.pool import Pool
from shared.hints import HintPublisher
from shared.ids import new_id
from shared.outbox import OutboxRelay, add_to_outbox
from shared.rpc import QuestionFailed, RpcClient
from shared.service import background
from shared.topology import RUNS, declare_all
from tests.integration.spine.conftest import Answerer, Ask, Reply, answering
from tests.integration.spine.test_hints import Ear, connected, has_heard
from tests.support.stack import Stack
from tests.support.waiting import eventually


async def test_rows_wait_hints_are_dropped_and_questions_fail_until_it_is_back(
    stack: Stack, pool: Pool, rabbitmq_url: str
) -> None:
    relay, publisher, ear = (
        OutboxRelay(pool, rabbitmq_url, "test"),
        HintPublisher(rabbitmq_url, "test"),
        Ear(rabbitmq_url),
    )
    client = RpcClient(rabbitmq_url, "test")
    command = ExecuteRun(tenant_id=new_id(), session_id=new_id(), run_id=new_id())

    async def client_ready() -> bool:
        return client.ready

    async def client_gone() -> bool:
        return not client.ready

    async with background([relay.run, publisher.run, ear.listener.run, client.run]):
        await connected(publisher, ear)
        await eventually(client_ready)
        await asyncio.to_thread(stack.rabbitmq.stop)
        try:
            await eventually(client_gone)
            async with pool.acquire() as connection:
                await add_to_outbox(connection, "ExecuteRun", command.run_id, command)
            relay.nudge()
            started = time.monotonic()
            publisher.send(StreamAdvanced(stream_id=new_id(), last_seq=1))
            assert time.monotonic() - started < 0.1

            with pytest.raises(QuestionFailed) as failed:
                await client.ask("questions", Ask(text="q"), Reply, deadline=1)
            assert (failed.value.code, failed.value.retryable) == ("question_undeliverable", True)

            async def hint_dropped() -> bool:
                return publisher._waiting.empty()

            await eventually(hint_dropped)
            assert await pool.fetchval("SELECT count(*) FROM outbox") == 1
        finally:
            await asyncio.to_thread(stack.rabbitmq.start)
        await connected(publisher, ear)
        await eventually(client_ready)
        publisher.send(StreamAdvanced(stream_id=new_id(), last_seq=2))
        await eventually(has_heard(ear, 1))
        assert b'"last_seq":2' in ear.heard[0][2]

        async def row_sent() -> bool:
            return bool(await pool.fetchval("SELECT count(*) FROM outbox") == 0)

        await eventually(row_sent)
        answerer = Answerer()
        answerer.gate.set()
        async with answering(rabbitmq_url, answerer):
            assert (await client.ask(answerer.queue, Ask(text="q"), Reply, deadline=5)).text == "Q"
    async with await aio_pika.connect(rabbitmq_url) as connection_after:
        queue = await (await connection_after.channel()).get_queue(RUNS)
        message = await queue.get(no_ack=True)
        assert ExecuteRun.model_validate_json(message.body) == command


async def test_declaring_everything_twice_and_twice_at_once(rabbitmq_url: str) -> None:
    async with await aio_pika.connect(rabbitmq_url) as one, await aio_pika.connect(rabbitmq_url) as other:
        channels = [await one.channel(), await other.channel()]
        await asyncio.gather(*(declare_all(channel) for channel in channels))
        await declare_all(channels[0])
        queue = await channels[1].get_queue(RUNS)
        assert (await queue.declare()).queue == RUNS
