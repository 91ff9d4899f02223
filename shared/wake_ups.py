"""Taking wake-ups: read the command, wait for a slot, and let go of the message as soon as the work is claimed.

And how many are waiting, which tells sweepers whether work that waits is in the queue or forgotten.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog
from faststream import AckPolicy
from faststream.exceptions import NackMessage, RejectMessage
from faststream.rabbit import RabbitBroker, RabbitMessage
from pydantic import ValidationError

from shared.amqp import BROKER_TROUBLE, Link, NotConnected
from shared.contracts.base import Contract
from shared.jobs import Draining, JobSlots
from shared.topology import consumer_channel, declare_all, undecoded, wake_up_queue

log = structlog.get_logger()

CommandT = TypeVar("CommandT", bound=Contract)

_ENOUGH_WAITING = 100
_COUNT_SECONDS = 2.0


def subscribe_to_wake_ups(
    broker: RabbitBroker, queue: str, prefetch: int, take: Callable[[bytes], Awaitable[None]]
) -> None:
    """Hands each wake-up's body to `take`, and acknowledges when that returns.

    At most `prefetch` unacknowledged ones wait here for a slot; all others wait where any replica can take them. `take` is bound by its
    caller and not injected: FastStream's injection costs half a millisecond of CPU a message.
    """

    async def take_body(message: RabbitMessage) -> None:
        await take(message.body)

    subscriber = broker.subscriber(
        wake_up_queue(queue),
        channel=consumer_channel(prefetch),
        ack_policy=AckPolicy.REJECT_ON_ERROR,
        decoder=undecoded,
        no_reply=True,
    )
    subscriber(take_body)


def read_command(body: bytes, command: type[CommandT]) -> CommandT:
    """The command of a wake-up. What can't be read goes to the dead letters (RejectMessage); the log names the fields, never the values."""
    try:
        return command.model_validate_json(body)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        fields = [".".join(map(str, problem["loc"])) for problem in problems]
        log.error("message.rejected", command=command.__name__, fields=fields)
        raise RejectMessage(requeue=False) from None


async def start_in_slot(slots: JobSlots, wait: float, work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Runs `work` in a slot and returns when it sets its event, which says that its claim has been made or has come to nothing.

    The claim belongs to the job: a lost broker connection cancels this function, but never leaves a claim without its job.
    Raises NackMessage when no slot is free within `wait` seconds or the process is stopping: another replica may take the wake-up.
    """
    try:
        await slots.take(wait)
    except (TimeoutError, Draining):
        raise NackMessage(requeue=True) from None
    claimed = asyncio.Event()

    async def job() -> None:
        try:
            await work(claimed)
        finally:
            claimed.set()

    slots.start(job)
    await claimed.wait()


class WaitingWakeUps:
    """How many wake-ups a queue holds. A sweeper adds none to a queue that holds plenty, so a backlog can't flood the broker, and fills up
    one that was wiped.
    """

    def __init__(self, rabbitmq_url: str, service: str, queue: str) -> None:
        self._link = Link(rabbitmq_url, f"{service}.sweeper", declare_all)
        self._queue = queue

    async def run(self) -> None:
        """Keeps the connection for ever."""
        await self._link.run()

    async def room(self) -> int:
        """How many more make sense. While the broker is away they wait in the outbox at worst."""
        try:
            queue = await self._link.channel.declare_queue(self._queue, passive=True, timeout=_COUNT_SECONDS)
        except (*BROKER_TROUBLE, NotConnected):
            return _ENOUGH_WAITING
        return max(_ENOUGH_WAITING - (queue.declaration_result.message_count or 0), 0)
