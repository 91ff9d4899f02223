"""Questions over real RabbitMQ: many in flight, deadlines, refusals, lost connections."""

import asyncio
import time

import aio_pika
import pytest

from shared.errors import CodedError
from shared.ids import new_id
from shared.rpc import DEADLINE_HEADER, QuestionFailed, RpcClient
from shared.service import background
from shared.topology import QUESTION_EXCHANGE
from tests.integration.spine.conftest import Answerer, Ask, Reply, answering
from tests.support.stack import Stack
from tests.support.waiting import eventually


async def test_an_answer(client: RpcClient, answerer: Answerer) -> None:
    assert await client.ask(answerer.queue, Ask(text="ready?"), Reply, deadline=5) == Reply(text="READY?")


async def test_fifty_questions_overlap_and_find_their_askers(client: RpcClient, answerer: Answerer) -> None:
    answerer.gate.clear()
    asked = [
        asyncio.ensure_future(client.ask(answerer.queue, Ask(text=f"q{n}"), Reply, deadline=10)) for n in range(50)
    ]

    async def all_there() -> bool:
        return answerer.now == 50

    await eventually(all_there)
    answerer.gate.set()

    assert [reply.text for reply in await asyncio.gather(*asked)] == [f"Q{n}" for n in range(50)]
    assert answerer.most_at_once == 50


async def test_no_more_in_flight_than_allowed(rabbitmq_url: str, answerer: Answerer) -> None:
    client = RpcClient(rabbitmq_url, "test", max_in_flight=3)
    answerer.gate.clear()
    async with background([client.run]):

        async def is_ready() -> bool:
            return client.ready

        await eventually(is_ready, every=0.01)
        asked = [asyncio.ensure_future(client.ask(answerer.queue, Ask(text="q"), Reply, deadline=10)) for _ in range(9)]

        async def three() -> bool:
            return answerer.now == 3

        await eventually(three)
        answerer.gate.set()
        await asyncio.gather(*asked)
    assert answerer.most_at_once == 3
    assert len(answerer.arrived) == 9


async def test_the_deadline_holds_for_all_tries_together(client: RpcClient, answerer: Answerer) -> None:
    answerer.gate.clear()
    started = time.monotonic()
    with pytest.raises(QuestionFailed, match=r"no answer within 0\.4 s") as failed:
        await client.ask(answerer.queue, Ask(text="slow"), Reply, deadline=0.4)

    assert 0.3 < time.monotonic() - started < 2
    assert (failed.value.code, failed.value.retryable) == ("question_timeout", True)
    assert client._waiting == {}


async def test_the_deadline_covers_waiting_for_a_turn(rabbitmq_url: str, answerer: Answerer) -> None:
    client = RpcClient(rabbitmq_url, "test", max_in_flight=1)
    answerer.gate.clear()
    async with background([client.run]):
        first = asyncio.ensure_future(client.ask(answerer.queue, Ask(text="first"), Reply, deadline=20))

        async def is_asked() -> bool:
            return answerer.now == 1

        await eventually(is_asked)
        with pytest.raises(QuestionFailed) as failed:
            await client.ask(answerer.queue, Ask(text="second"), Reply, deadline=0.2)
        answerer.gate.set()
        await first
    assert failed.value.code == "question_timeout"
    assert answerer.arrived == ["first"]


async def test_a_lost_question_is_asked_again(client: RpcClient, answerer: Answerer) -> None:
    """The first try is never answered; the second is, within the same deadline."""

    async def answer(_question: Ask) -> Reply:
        if len(answerer.arrived) == 1:
            await asyncio.Event().wait()
        return Reply(text="second")

    answerer.answer = answer
    assert (await client.ask(answerer.queue, Ask(text="q"), Reply, deadline=3)).text == "second"
    assert answerer.arrived == ["q", "q"]


async def test_a_question_that_is_never_answered_is_asked_twice_and_no_more(
    client: RpcClient, answerer: Answerer
) -> None:
    answerer.gate.clear()
    with pytest.raises(QuestionFailed) as failed:
        await client.ask(answerer.queue, Ask(text="q"), Reply, deadline=1.5)

    assert (failed.value.code, failed.value.retryable) == ("question_timeout", True)
    assert answerer.arrived == ["q", "q"]


async def test_a_refusal_is_raised_with_its_code_and_not_repeated(client: RpcClient, answerer: Answerer) -> None:
    async def refuse(_question: Ask) -> Reply:
        raise CodedError("not yours", code="not_found")

    answerer.answer = refuse
    with pytest.raises(QuestionFailed, match="not yours") as failed:
        await client.ask(answerer.queue, Ask(text="q"), Reply, deadline=5)

    assert (failed.value.code, failed.value.retryable) == ("not_found", False)
    assert answerer.arrived == ["q"]


async def test_a_retryable_refusal_is_repeated_once(client: RpcClient, answerer: Answerer) -> None:
    async def refuse(_question: Ask) -> Reply:
        raise CodedError("busy", code="database_unavailable", retryable=True)

    answerer.answer = refuse
    with pytest.raises(QuestionFailed) as failed:
        await client.ask(answerer.queue, Ask(text="q"), Reply, deadline=5)

    assert (failed.value.code, failed.value.retryable) == ("database_unavailable", True)
    assert answerer.arrived == ["q", "q"]


async def test_a_crash_of_the_answerer_is_a_refusal_without_details(client: RpcClient, answerer: Answerer) -> None:
    async def crash(_question: Ask) -> Reply:
        raise KeyError("secret detail")

    answerer.answer = crash
    with pytest.raises(QuestionFailed) as failed:
        await client.ask(answerer.queue, Ask(text="q"), Reply, deadline=5, retries=0)

    assert failed.value.code == "internal_error"
    assert "secret" not in failed.value.message


async def test_an_expired_question_never_reaches_the_answerer(rabbitmq_url: str, answerer: Answerer) -> None:
    """Neither one that expired in the queue nor one that expired in a consumer's hands."""
    late = int((time.time() - 0.001) * 1000)
    async with await aio_pika.connect(rabbitmq_url) as connection:
        channel = await connection.channel()
        message = aio_pika.Message(Ask(text="late").model_dump_json().encode(), headers={DEADLINE_HEADER: late})
        await channel.default_exchange.publish(message, routing_key=answerer.queue)

        async def is_taken() -> bool:
            return answerer.taken == 1

        await eventually(is_taken)
    assert answerer.arrived == []


async def test_a_question_that_expires_in_the_queue_is_dropped_by_the_broker(
    rabbitmq_url: str, client: RpcClient
) -> None:
    answerer = Answerer()
    answerer.gate.set()
    async with await aio_pika.connect(rabbitmq_url) as connection:
        channel = await connection.channel()
        await channel.declare_queue(answerer.queue)
        with pytest.raises(QuestionFailed):
            await client.ask(answerer.queue, Ask(text="late"), Reply, deadline=0.1)

        async with answering(rabbitmq_url, answerer):
            assert (await client.ask(answerer.queue, Ask(text="now"), Reply, deadline=5)).text == "NOW"
    assert answerer.arrived == ["now"]


async def test_an_unroutable_question_fails_at_once(client: RpcClient) -> None:
    started = time.monotonic()
    with pytest.raises(QuestionFailed, match="nobody takes this question") as failed:
        await client.ask(f"nowhere-{new_id()}", Ask(text="q"), Reply, deadline=10)

    assert time.monotonic() - started < 3
    assert (failed.value.code, failed.value.retryable) == ("question_undeliverable", True)
    assert client._waiting == {}


async def test_an_unreadable_question_and_an_unreadable_answer(client: RpcClient, answerer: Answerer) -> None:
    with pytest.raises(QuestionFailed) as failed:
        await client.ask(answerer.queue, WithoutText(), Reply, deadline=5)
    assert failed.value.code == "invalid_question"

    with pytest.raises(QuestionFailed) as failed:
        await client.ask(answerer.queue, Ask(text="q"), WithNumber, deadline=5)
    assert failed.value.code == "answer_unreadable"


class WithoutText(Ask):
    """Not what the answerer expects."""

    text: str = ""

    def model_dump_json(self, **_: object) -> str:
        return "{}"


class WithNumber(Reply):
    """Not what the answerer sends."""

    number: int


async def test_a_cancelled_asker_leaves_nothing_behind(client: RpcClient, answerer: Answerer) -> None:
    answerer.gate.clear()
    asked = asyncio.ensure_future(client.ask(answerer.queue, Ask(text="q"), Reply, deadline=20))

    async def is_asked() -> bool:
        return answerer.now == 1

    await eventually(is_asked)
    assert len(client._waiting) == 1
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert client._waiting == {}

    # The late answer to it disturbs nobody.
    answerer.gate.set()
    assert (await client.ask(answerer.queue, Ask(text="next"), Reply, deadline=5)).text == "NEXT"


async def test_a_lost_connection_fails_what_waits_and_asks_again(
    stack: Stack, rabbitmq_url: str, client: RpcClient
) -> None:
    answerer = Answerer()
    async with await aio_pika.connect(rabbitmq_url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(answerer.queue, durable=True)
        await queue.bind(await channel.declare_exchange(QUESTION_EXCHANGE, durable=True), answerer.queue)
    waiting = [asyncio.ensure_future(_outcome(client, answerer.queue, retries)) for retries in (0, 5)]

    async def both_wait() -> bool:
        return len(client._waiting) == 2

    await eventually(both_wait, every=0.01)
    vhost = rabbitmq_url.rsplit("/", 1)[1]
    await asyncio.to_thread(stack.rabbitmq.ctl, "close_all_connections", "--vhost", vhost, "test")

    assert await waiting[0] == "question_undeliverable"
    answerer.gate.set()
    async with await aio_pika.connect(rabbitmq_url) as connection:
        queue = await (await connection.channel(publisher_confirms=False)).declare_queue(answerer.queue, durable=True)
        await queue.consume(answerer.take, no_ack=True)
        assert await waiting[1] == "AGAIN"
        await queue.delete(if_unused=False, if_empty=False)
    assert client._waiting == {}


async def _outcome(client: RpcClient, queue: str, retries: int) -> str:
    try:
        return (await client.ask(queue, Ask(text="again"), Reply, deadline=30, retries=retries)).text
    except QuestionFailed as failed:
        return failed.code if failed.retryable else "not retryable"


async def test_a_question_of_a_process_that_has_just_started_waits_for_its_connection(rabbitmq_url: str) -> None:
    """Work is claimed from the database, and so may begin before the broker is connected."""
    rpc = RpcClient(rabbitmq_url, "test")
    asking = asyncio.ensure_future(rpc.ask("nobody", Ask(text="q"), Reply, deadline=9, retries=0))
    await asyncio.sleep(0)
    assert not asking.done()
    async with background([rpc.run]):
        with pytest.raises(QuestionFailed) as failed:
            await asyncio.wait_for(asking, 20)
    # It has reached the broker, which knows of nobody who takes it.
    assert failed.value.message == "nobody takes this question"
