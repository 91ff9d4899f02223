"""Questions over real RabbitMQ: the handler in this process, its asker on another connection."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aio_pika
import orjson
import pytest

from services.retrieval.handlers import subscribe
from services.retrieval.ports import Vector
from services.retrieval.search import Search
from services.retrieval.settings import SearchSettings
from services.retrieval.store import SearchStore
from shared.contracts.questions import SearchKnowledge, SearchResult, TenantScope
from shared.ids import new_id
from shared.rpc import DEADLINE_HEADER, QuestionFailed, RpcClient
from shared.service import background, consumer_check, make_broker
from shared.settings import CommonSettings
from shared.topology import QUESTIONS, REPLY_EXCHANGE, declare_own_queue
from tests.integration.retrieval.library import Base, FixedEmbedder, Library
from tests.support.waiting import eventually


@dataclass
class GatedEmbedder(FixedEmbedder):
    """Waits at a gate and counts who waits."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: int = 0

    async def embed(self, model: str, queries: Sequence[str]) -> list[Vector]:
        self.waiting += 1
        await self.gate.wait()
        self.waiting -= 1
        return await super().embed(model, queries)


@dataclass
class Service:
    """A retrieval service in this process, and an asker."""

    library: Library
    url: str
    base: Base
    embedder: GatedEmbedder
    rpc: RpcClient
    consumes: Callable[[], Awaitable[bool]]

    async def ask(self, query: str = "q", deadline: float = 10.0, **options: Any) -> SearchResult:
        question = SearchKnowledge.model_validate({"scope": self.base.scope, "query": query, **options})
        return await self.rpc.ask(QUESTIONS, question, SearchResult, deadline=deadline)


@pytest.fixture
async def service(library: Library, rabbitmq_url: str) -> AsyncIterator[Service]:
    async with _service(library, rabbitmq_url) as service:
        yield service


@asynccontextmanager
async def _service(library: Library, url: str, **settings: int) -> AsyncIterator[Service]:
    base = await library.add_base()
    await library.add_chunks(base, ["one", "two"])
    embedder = GatedEmbedder()
    embedder.gate.set()
    common = CommonSettings.model_validate({"DATABASE_URL": "postgresql://nobody@127.0.0.1/none", "RABBITMQ_URL": url})
    broker = make_broker(common, "retrieval", apply_types=False)
    store = SearchStore(library.pool, keyword_postings=5_000)
    subscribe(broker, Search(store, embedder, SearchSettings(**settings)))
    rpc = RpcClient(url, "test", max_in_flight=100)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(background([rpc.run]))
        await broker.start()
        stack.push_async_callback(broker.stop)
        await eventually(_connected(rpc))
        yield Service(library, url, base, embedder, rpc, consumer_check(broker))


def _connected(rpc: RpcClient) -> Callable[[], Awaitable[bool]]:
    async def connected() -> bool:
        return rpc.ready

    return connected


@asynccontextmanager
async def raw_channel(url: str) -> AsyncIterator[aio_pika.abc.AbstractChannel]:
    connection = await aio_pika.connect(url)
    async with connection:
        yield await connection.channel()


async def ask_raw(url: str, body: bytes, headers: dict[str, Any] | None = None) -> dict[str, Any]:
    """Sends any bytes as a question; the envelope that comes back."""
    replies: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        replies.put_nowait(message.body)

    async with raw_channel(url) as channel:
        exchange = await channel.declare_exchange(REPLY_EXCHANGE, durable=True)
        queue = await declare_own_queue(channel, "test", "replies")
        await queue.bind(exchange, queue.name)
        await queue.consume(take, no_ack=True)
        message = aio_pika.Message(body, reply_to=queue.name, correlation_id="1", headers=headers)
        await channel.default_exchange.publish(message, QUESTIONS)
        async with asyncio.timeout(10):
            answer: dict[str, Any] = orjson.loads(await replies.get())
            return answer


async def test_a_question_is_answered(service: Service) -> None:
    found = await service.ask()

    assert {hit.content for hit in found.hits} == {"one", "two"}


async def test_fifty_questions_are_worked_on_at_once(library: Library, rabbitmq_url: str) -> None:
    async with _service(library, rabbitmq_url, max_concurrent=50) as service:
        service.embedder.gate.clear()
        answers = [asyncio.create_task(service.ask(f"question {n}", deadline=30)) for n in range(50)]

        async def all_wait() -> bool:
            return service.embedder.waiting == 50

        await eventually(all_wait)
        service.embedder.gate.set()

        assert [len(found.hits) for found in await asyncio.gather(*answers)] == [2] * 50


async def test_more_questions_than_turns_wait_for_theirs(library: Library, rabbitmq_url: str) -> None:
    async with _service(library, rabbitmq_url, max_concurrent=3) as service:
        service.embedder.gate.clear()
        answers = [asyncio.create_task(service.ask(f"question {n}", deadline=30)) for n in range(10)]

        async def three_wait() -> bool:
            return service.embedder.waiting == 3

        await eventually(three_wait)
        service.embedder.gate.set()

        assert [len(found.hits) for found in await asyncio.gather(*answers)] == [2] * 10


async def test_an_expired_question_is_never_searched(service: Service) -> None:
    expired = SearchKnowledge(scope=service.base.scope, query="expired").model_dump_json().encode()
    async with raw_channel(service.url) as channel:
        past = int(time.time() * 1000) - 1
        await channel.default_exchange.publish(
            aio_pika.Message(expired, reply_to="test.replies.x", headers={DEADLINE_HEADER: past}), QUESTIONS
        )

    await service.ask("later")  # the queue is in order: when this one is answered, the expired one was looked at

    assert service.embedder.asked == [("tiny", "later")]


async def test_a_question_is_given_up_when_its_asker_has(service: Service) -> None:
    service.embedder.gate.clear()
    with pytest.raises(QuestionFailed) as failure:
        await service.ask("late", deadline=0.5, mode="dense")
    # Shortly before the deadline it says what was late; its answer may come too late for the asker all the same.
    assert failure.value.code in {"embedding_unavailable", "question_timeout"}

    service.embedder.gate.set()
    assert len((await service.ask("next")).hits) == 2
    assert service.embedder.asked == [("tiny", "next")]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"garbage",
        b"\xff\xfe",
        b"[]",
        b'{"query": "q"}',
        b'{"scope": {"by": "everything"}, "query": "q"}',
        orjson.dumps({"scope": {"by": "run", "run_id": "x"}, "query": "q"}),
        orjson.dumps({"scope": {"by": "run", "run_id": str(new_id())}, "query": "q" * 20_001}),
        orjson.dumps(
            {"scope": {"by": "run", "run_id": "01900000-0000-7000-8000-000000000000"}, "query": "q", "top_k": 51}
        ),
        orjson.dumps({"scope": {"by": "run", "run_id": str(new_id())}, "query": "q", "schema_version": 3}),
    ],
)
async def test_a_malformed_question_is_refused(service: Service, body: bytes) -> None:
    answer = await ask_raw(service.url, body)

    assert (answer["ok"], answer["code"], answer["retryable"]) == (False, "invalid_question", False)
    assert len((await service.ask()).hits) == 2


async def test_refusals_carry_their_code(service: Service) -> None:
    scope = TenantScope(tenant_id=service.base.tenant_id, knowledge_base_id=new_id())

    with pytest.raises(QuestionFailed) as failure:
        await service.ask(scope=scope)

    assert (failure.value.code, failure.value.retryable) == ("knowledge_base_not_found", False)


async def test_a_question_cannot_name_a_queue_for_its_answer(service: Service) -> None:
    body = SearchKnowledge(scope=service.base.scope, query="forged").model_dump_json().encode()
    async with raw_channel(service.url) as channel:
        victim = await channel.declare_queue("victim", exclusive=True)
        await channel.default_exchange.publish(aio_pika.Message(body, reply_to="victim"), QUESTIONS)
        await service.ask("next")

        assert await victim.get(fail=False) is None
    assert service.embedder.asked == [("tiny", "next")]


async def test_answered_questions_leave_nothing_behind(service: Service) -> None:
    await asyncio.gather(*(service.ask(f"question {n}") for n in range(20)))

    async def empty() -> bool:
        async with raw_channel(service.url) as channel:
            queue = await channel.declare_queue(QUESTIONS, passive=True)
            return queue.declaration_result.message_count == 0

    assert await eventually(empty)


async def test_it_answers_again_after_its_queue_was_deleted(service: Service) -> None:
    await service.ask("before")
    assert await service.consumes()
    async with raw_channel(service.url) as channel:
        await channel.queue_delete(QUESTIONS)

    async def answers() -> bool:
        try:
            return len((await service.ask("after", deadline=1.0)).hits) == 2
        except QuestionFailed:
            return False

    assert await eventually(answers, within=10)
    assert await eventually(service.consumes, within=10)
