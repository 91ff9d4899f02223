"""Every queue, exchange and routing key, and how it is declared.

| name | what it is |
|---|---|
| runs, documents | durable quorum queues of wake-ups; what can't be read goes to dead-letters |
| dead-letters | durable quorum queue, bound to the exchange of the same name |
| retrieval.questions | classic queue of questions; the newest win when it is full, because the oldest expire first |
| hints | fanout exchange, transient; each gateway and agent_runner has an exclusive queue on it |

Arguments hold only what correctness needs (queue type, dead-letter exchange): a queue's arguments can't be changed later. Lengths and
delivery limits belong into policies.
"""

from aio_pika import ExchangeType
from aio_pika.abc import AbstractChannel
from faststream.rabbit import QueueType, RabbitMessage, RabbitQueue
from faststream.rabbit.schemas import Channel

from shared.contracts.base import Contract
from shared.contracts.commands import ExecuteRun, IngestDocument

RUNS = "runs"
DOCUMENTS = "documents"
DEAD_LETTERS = "dead-letters"
QUESTIONS = "retrieval.questions"
HINTS = "hints"

QUEUE_OF_KIND = {ExecuteRun.__name__: RUNS, IngestDocument.__name__: DOCUMENTS}

_MAX_QUESTIONS = 10_000


def kind_of(message: Contract) -> str:
    """The outbox's name for a message class."""
    return type(message).__name__


def wake_up_queue(name: str) -> RabbitQueue:
    """RUNS or DOCUMENTS, for a FastStream subscriber."""
    return RabbitQueue(
        name, queue_type=QueueType.QUORUM, durable=True, arguments={"x-dead-letter-exchange": DEAD_LETTERS}
    )


def question_queue() -> RabbitQueue:
    """QUESTIONS, for retrieval's FastStream subscriber."""
    return RabbitQueue(
        QUESTIONS,
        queue_type=QueueType.CLASSIC,
        durable=True,
        arguments={"x-max-length": _MAX_QUESTIONS, "x-overflow": "drop-head"},
    )


def consumer_channel(prefetch: int) -> Channel:
    """A channel that takes at most `prefetch` unacknowledged messages."""
    return Channel(prefetch_count=prefetch)


async def undecoded(message: RabbitMessage) -> RabbitMessage:
    """FastStream's decoder for handlers that read the body themselves, once."""
    return message


async def declare_all(channel: AbstractChannel) -> None:
    """Declares every durable queue and exchange; doing it again, or twice at once, changes nothing."""
    dead = await channel.declare_exchange(DEAD_LETTERS, ExchangeType.FANOUT, durable=True)
    dead_letters = await channel.declare_queue(DEAD_LETTERS, durable=True, arguments={"x-queue-type": "quorum"})
    await dead_letters.bind(dead)
    for queue in (*map(wake_up_queue, QUEUE_OF_KIND.values()), question_queue()):
        await channel.declare_queue(queue.name, durable=True, arguments=dict(queue.arguments or {}))
    await channel.declare_exchange(HINTS, ExchangeType.FANOUT, durable=True)
