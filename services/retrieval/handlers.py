"""Questions: read one, search, answer whoever asked."""

from functools import partial

import structlog
from aiormq import spec
from faststream import AckPolicy
from faststream.rabbit import RabbitBroker, RabbitMessage
from faststream.rabbit.schemas import Channel

from services.retrieval.search import Search
from shared.amqp import BROKER_TROUBLE
from shared.contracts.questions import SearchKnowledge
from shared.rpc import answer_within, seconds_left
from shared.topology import (
    QUESTION_EXCHANGE,
    REPLY_EXCHANGE,
    direct_exchange,
    is_reply_queue,
    question_queue,
    undecoded,
)

log = structlog.get_logger()

# What one process holds at most; the rest waits in the queue, where any replica can take it and where the oldest give way to the newest.
_PREFETCH = 64


def subscribe(broker: RabbitBroker, search: Search) -> None:
    """Registers the question handler.

    The search is bound here and not injected: FastStream's injection costs half a millisecond of CPU a message, more than the whole
    round trip, and so the broker must be one with `apply_types=False`.
    """
    subscriber = broker.subscriber(
        question_queue(),
        exchange=direct_exchange(QUESTION_EXCHANGE),
        channel=Channel(prefetch_count=_PREFETCH, publisher_confirms=False),
        ack_policy=AckPolicy.MANUAL,
        decoder=undecoded,
        no_reply=True,
    )
    subscriber(partial(answer_question, search=search))


async def answer_question(message: RabbitMessage, search: Search) -> None:
    """Sends the answer or a Refused, then acknowledges: a question whose process dies goes to another one."""
    try:
        if is_reply_queue(message.reply_to):
            answer_in_time = partial(search.answer, seconds=seconds_left(message.headers))
            answer = await answer_within(message.headers, message.body, SearchKnowledge, answer_in_time)
            if answer is not None:
                await _reply(message, answer)
        else:
            log.warning("question.unanswerable")
        await message.raw_message.ack()
    except BROKER_TROUBLE as error:
        log.warning("reply.lost", cause=type(error).__name__)  # the asker notices by its deadline


async def _reply(message: RabbitMessage, answer: bytes) -> None:
    """On the question's own channel, without confirm: a reply that is lost costs its asker a second try, and nothing else.

    The exchange knows the askers' own queues: whatever a question names, its answer reaches no other.
    """
    properties = spec.Basic.Properties(
        content_type="application/json", correlation_id=message.correlation_id, delivery_mode=1
    )
    await message.raw_message.channel.basic_publish(
        answer, exchange=REPLY_EXCHANGE, routing_key=message.reply_to, properties=properties, mandatory=False
    )
