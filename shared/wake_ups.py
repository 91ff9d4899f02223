"""Taking wake-ups: read the command, say that there may be work, and let go of the message when there is room for it."""

from typing import Protocol, TypeVar

import structlog
from faststream import AckPolicy
from faststream.exceptions import NackMessage
from faststream.rabbit import RabbitBroker, RabbitMessage
from pydantic import ValidationError

from shared.contracts.base import Contract
from shared.dead_letters import UnreadableMessage, reason_of, with_dead_letters
from shared.failpoints import failpoint
from shared.topology import WAKE_UP_EXCHANGE, consumer_channel, direct_exchange, undecoded, wake_up_queue

log = structlog.get_logger()

CommandT = TypeVar("CommandT", bound=Contract)

_PREFETCH = 4  # parked wake-ups a process at most, when its slots are full
_PARK_SECONDS = 20.0  # well below any broker's patience with unacknowledged messages


class Intake(Protocol):
    """Who claims the work that wake-ups tell of."""

    @property
    def stopping(self) -> bool: ...

    def nudge(self) -> None: ...

    async def wait_for_room(self, within: float) -> None: ...


def subscribe_to_wake_ups(broker: RabbitBroker, queue: str, command: type[Contract], intake: Intake) -> None:
    """Passes on that there may be work, and acknowledges when there is room for it.

    A full process parks a few wake-ups, so that the broker gives the others to replicas that have room. The handler reads the body itself:
    FastStream's injection costs half a millisecond of CPU a message.
    """

    async def take(message: RabbitMessage) -> None:
        read_command(message.body, command)
        failpoint("wake_up_taken")
        intake.nudge()
        await intake.wait_for_room(_PARK_SECONDS)
        if intake.stopping:
            raise NackMessage(requeue=True)

    subscriber = broker.subscriber(
        wake_up_queue(queue),
        exchange=direct_exchange(WAKE_UP_EXCHANGE),
        channel=consumer_channel(_PREFETCH),
        ack_policy=AckPolicy.REJECT_ON_ERROR,
        decoder=undecoded,
        no_reply=True,
    )
    subscriber(with_dead_letters(broker, queue, take))


def read_command(body: bytes, command: type[CommandT]) -> CommandT:
    """The command of a wake-up. What can't be read goes to the dead letters; reason and log name fields, never values."""
    try:
        return command.model_validate_json(body)
    except ValidationError as error:
        reason = reason_of(error, body)
        log.error("message.rejected", command=command.__name__, reason=reason)
        raise UnreadableMessage(reason) from None
