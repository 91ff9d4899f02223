"""A retrieval that answers as a test tells it to, over real RabbitMQ: how fast, and with which hits. It counts."""

import asyncio
from types import TracebackType
from typing import Self

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from shared.contracts.questions import Hit, SearchKnowledge, SearchResult
from shared.ids import new_id
from shared.rpc import answer_within
from shared.topology import QUESTIONS, declare_all


def make_hit(content: str) -> Hit:
    """A hit with that text."""
    return Hit(
        chunk_id=new_id(),
        document_id=new_id(),
        knowledge_base_id=new_id(),
        filename="handbook.md",
        version=1,
        ordinal=0,
        title="Returns",
        heading_path=("Handbook", "Returns"),
        content=content,
        char_start=0,
        char_end=len(content),
        score=0.9,
    )


class RetrievalDouble:
    """Answers every question with `hits` after `delay` seconds, once `gate` is open."""

    def __init__(self, rabbitmq_url: str, *, delay: float = 0.0, hits: tuple[Hit, ...] | None = None) -> None:
        self._url = rabbitmq_url
        self.delay = delay
        self.hits = (make_hit("Goods may be returned within 30 days."),) if hits is None else hits
        self.gate = asyncio.Event()
        self.gate.set()
        self.questions: list[SearchKnowledge] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._connection = await aio_pika.connect_robust(self._url)
        channel = await self._connection.channel(publisher_confirms=False)
        await channel.set_qos(64)
        await declare_all(channel)
        self._exchange = channel.default_exchange
        queue = await channel.get_queue(QUESTIONS)
        await queue.consume(self._take, no_ack=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._connection.close()

    async def _take(self, message: AbstractIncomingMessage) -> None:
        task = asyncio.create_task(self._answer(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, message: AbstractIncomingMessage) -> None:
        body = await answer_within(message.headers, message.body, SearchKnowledge, self._search)
        if body is not None and message.reply_to:
            reply = aio_pika.Message(body, correlation_id=message.correlation_id)
            await self._exchange.publish(reply, routing_key=message.reply_to, mandatory=False)

    async def _search(self, question: SearchKnowledge) -> SearchResult:
        self.questions.append(question)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await self.gate.wait()
            await asyncio.sleep(self.delay)
        finally:
            self.in_flight -= 1
        return SearchResult(hits=self.hits)
