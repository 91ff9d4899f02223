"""What the spine's tests share: questions of their own, an answerer, and background loops for the time of a test."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage
from pydantic import BaseModel

from shared.contracts.base import Contract
from shared.ids import new_id
from shared.rpc import RpcClient, answer_within
from shared.service import background
from shared.topology import QUESTION_EXCHANGE
from tests.support.waiting import eventually


class Ask(Contract):
    """A question."""

    text: str


class Reply(BaseModel):
    """Its answer."""

    text: str


@dataclass
class Answerer:
    """Takes questions from a queue of its own. Set `answer` to decide what comes of them."""

    queue: str = field(default_factory=lambda: f"questions-{new_id()}")
    arrived: list[str] = field(default_factory=list)
    taken: int = 0
    now: int = 0
    most_at_once: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    answer: Callable[[Ask], Awaitable[Reply]] | None = None

    async def take(self, message: AbstractIncomingMessage) -> None:
        self.taken += 1
        reply = await answer_within(message.headers, message.body, Ask, self._answer)
        if reply is not None and message.reply_to:
            await message.channel.basic_publish(
                reply,
                routing_key=message.reply_to,
                properties=aio_pika.Message(b"", correlation_id=message.correlation_id).properties,
            )

    async def _answer(self, question: Contract) -> Reply:
        assert isinstance(question, Ask)
        self.arrived.append(question.text)
        self.now += 1
        self.most_at_once = max(self.most_at_once, self.now)
        try:
            await self.gate.wait()
            return await self.answer(question) if self.answer else Reply(text=question.text.upper())
        finally:
            self.now -= 1


@asynccontextmanager
async def answering(rabbitmq_url: str, answerer: Answerer) -> AsyncIterator[None]:
    """The answerer consumes for the time of the block."""
    connection = await aio_pika.connect(rabbitmq_url)
    async with connection:
        channel = await connection.channel(publisher_confirms=False)
        queue = await channel.declare_queue(answerer.queue)
        await queue.bind(await channel.declare_exchange(QUESTION_EXCHANGE, durable=True), answerer.queue)
        await queue.consume(answerer.take, no_ack=True)
        yield
        if not channel.is_closed:
            await queue.delete(if_unused=False, if_empty=False)


@pytest.fixture
async def answerer(rabbitmq_url: str) -> AsyncIterator[Answerer]:
    """An answerer with its gate open."""
    answerer = Answerer()
    answerer.gate.set()
    async with answering(rabbitmq_url, answerer):
        yield answerer
        answerer.gate.set()


@pytest.fixture
async def client(rabbitmq_url: str) -> AsyncIterator[RpcClient]:
    """A connected asker with room for many questions."""
    client = RpcClient(rabbitmq_url, "test", max_in_flight=100)

    async def is_ready() -> bool:
        return client.ready

    async with background([client.run]):
        await eventually(is_ready, every=0.01)
        yield client
