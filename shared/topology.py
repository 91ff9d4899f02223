"""Every queue, exchange and routing key, and how it is declared.

| name | what it is |
|---|---|
| runs, documents | durable quorum queues of wake-ups, bound to the exchange wake-ups; what can't be read goes to dead-letters |
| dead-letters | durable quorum queue, bound to the exchange of the same name |
| search-questions | classic queue of questions, bound to the exchange questions; the newest win when it is full |
| replies | direct exchange; each process that asks has an exclusive queue on it, `<service>.replies.<id>` |
| hints | fanout exchange, transient; each gateway and agent_runner has an exclusive queue on it, `<service>.hints.<id>` |

Nothing is published through the default exchange, which reaches every queue: an account may write to an exchange or not, that is all that
RabbitMQ checks. Who consumes a queue declares it, so that the others need no right to.

Arguments hold only what correctness needs (queue type, dead-letter exchange): a queue's arguments can't be changed later. Lengths and
delivery limits belong into policies.
"""

from collections.abc import Collection

from aio_pika import ExchangeType
from aio_pika.abc import AbstractChannel, AbstractQueue
from faststream.rabbit import ExchangeType as RabbitExchangeType
from faststream.rabbit import QueueType, RabbitExchange, RabbitMessage, RabbitQueue
from faststream.rabbit.schemas import Channel

from shared.contracts.base import Contract
from shared.contracts.commands import ExecuteRun, IngestDocument
from shared.ids import new_id

RUNS = "runs"
DOCUMENTS = "documents"
DEAD_LETTERS = "dead-letters"
QUESTIONS = "search-questions"  # another name than the first release had: its processes answer in another way
HINTS = "hints"
WAKE_UP_EXCHANGE = "wake-ups"
QUESTION_EXCHANGE = "questions"
REPLY_EXCHANGE = "replies"

QUEUE_OF_KIND = {ExecuteRun.__name__: RUNS, IngestDocument.__name__: DOCUMENTS}

_MAX_QUESTIONS = 10_000


def kind_of(message: Contract) -> str:
    """The outbox's name for a message class."""
    return type(message).__name__


def wake_up_queue(name: str) -> RabbitQueue:
    """RUNS or DOCUMENTS, for a FastStream subscriber."""
    return RabbitQueue(
        name,
        queue_type=QueueType.QUORUM,
        durable=True,
        arguments={"x-dead-letter-exchange": DEAD_LETTERS},
        routing_key=name,
    )


def direct_exchange(name: str) -> RabbitExchange:
    """WAKE_UP_EXCHANGE or QUESTION_EXCHANGE, for a FastStream subscriber."""
    return RabbitExchange(name, type=RabbitExchangeType.DIRECT, durable=True)


def question_queue() -> RabbitQueue:
    """QUESTIONS, for retrieval's FastStream subscriber."""
    return RabbitQueue(
        QUESTIONS,
        queue_type=QueueType.CLASSIC,
        durable=True,
        arguments={"x-max-length": _MAX_QUESTIONS, "x-overflow": "drop-head"},
        routing_key=QUESTIONS,
    )


def consumer_channel(prefetch: int) -> Channel:
    """A channel that takes at most `prefetch` unacknowledged messages."""
    return Channel(prefetch_count=prefetch)


async def undecoded(message: RabbitMessage) -> RabbitMessage:
    """FastStream's decoder for handlers that read the body themselves, once."""
    return message


async def declare_all(channel: AbstractChannel) -> None:
    """Declares every durable queue and exchange; doing it again, or twice at once, changes nothing."""
    await declare_wake_ups(channel, tuple(QUEUE_OF_KIND.values()))
    await _declare_bound(channel, question_queue(), QUESTION_EXCHANGE)
    await channel.declare_exchange(REPLY_EXCHANGE, ExchangeType.DIRECT, durable=True)
    await channel.declare_exchange(HINTS, ExchangeType.FANOUT, durable=True)


async def declare_wake_ups(channel: AbstractChannel, queues: Collection[str]) -> None:
    """Declares these queues of wake-ups, and with them where they get messages from and where they put unreadable ones."""
    if not queues:
        return
    dead = await channel.declare_exchange(DEAD_LETTERS, ExchangeType.FANOUT, durable=True)
    dead_letters = await channel.declare_queue(DEAD_LETTERS, durable=True, arguments={"x-queue-type": "quorum"})
    await dead_letters.bind(dead)
    for name in queues:
        await _declare_bound(channel, wake_up_queue(name), WAKE_UP_EXCHANGE)


async def _declare_bound(channel: AbstractChannel, queue: RabbitQueue, exchange: str) -> None:
    await channel.declare_exchange(exchange, ExchangeType.DIRECT, durable=True)
    declared = await channel.declare_queue(queue.name, durable=True, arguments=dict(queue.arguments or {}))
    await declared.bind(exchange, routing_key=queue.name)


async def declare_own_queue(channel: AbstractChannel, service: str, purpose: str) -> AbstractQueue:
    """An exclusive queue that goes with its connection, under a name by which the broker knows whose it is."""
    return await channel.declare_queue(f"{service}.{purpose}.{new_id()}", exclusive=True, auto_delete=True)


def is_reply_queue(name: str | None) -> bool:
    """Whether a question that names this queue for its answer can be answered at all."""
    return name is not None and ".replies." in name
