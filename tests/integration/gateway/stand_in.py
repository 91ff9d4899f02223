"""Stands in for the retrieval service: takes questions from the real queue, and answers as it was told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aio_pika
from aio_pika.abc import AbstractIncomingMessage
from pydantic import BaseModel

from shared.contracts.base import Contract
from shared.contracts.questions import SearchKnowledge, SearchResult
from shared.errors import CodedError
from shared.rpc import answer_within
from shared.topology import QUESTIONS, declare_all


class Retrieval:
    """The questions that came, and what they are answered."""

    def __init__(self) -> None:
        self.questions: list[SearchKnowledge] = []
        self.result = SearchResult(hits=())
        self.refusal: CodedError | None = None

    async def answer(self, question: Contract) -> BaseModel:
        assert isinstance(question, SearchKnowledge)
        self.questions.append(question)
        if self.refusal is not None:
            raise self.refusal
        return self.result


@asynccontextmanager
async def answering_questions(rabbitmq_url: str) -> AsyncIterator[Retrieval]:
    """Answers for the time of the block; questions that nobody has answered before are dropped."""
    retrieval = Retrieval()
    async with await aio_pika.connect(rabbitmq_url) as connection, connection.channel() as channel:
        await declare_all(channel)

        async def take(message: AbstractIncomingMessage) -> None:
            envelope = await answer_within(message.headers, message.body, SearchKnowledge, retrieval.answer)
            if envelope is not None and message.reply_to:
                reply = aio_pika.Message(envelope, correlation_id=message.correlation_id)
                await channel.default_exchange.publish(reply, message.reply_to, mandatory=False)

        questions = await channel.get_queue(QUESTIONS, ensure=False)
        await questions.purge()
        await questions.consume(take, no_ack=True)
        yield retrieval
