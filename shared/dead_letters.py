"""Dead letters: wake-ups that can't be read, set aside with the reason.

The consumer itself publishes such a message to the exchange of dead letters, with headers that say what was wrong, where and when, and
acknowledges it once the broker has it. If that fails the message is rejected, and the broker does the same without the reason. A reason
names fields and never shows values: a body may hold anything.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import structlog
from aio_pika.abc import HeadersType
from aiormq import spec
from faststream.exceptions import RejectMessage
from faststream.rabbit import ExchangeType, RabbitBroker, RabbitExchange, RabbitMessage
from pydantic import ValidationError

from shared.amqp import BROKER_TROUBLE
from shared.contracts.base import Contract
from shared.contracts.commands import ExecuteRun, IngestDocument
from shared.topology import DEAD_LETTERS, DOCUMENTS, RUNS

log = structlog.get_logger()

REASON_HEADER = "x-reason"
QUEUE_HEADER = "x-queue"
SERVICE_HEADER = "x-service"
TIME_HEADER = "x-set-aside-at"  # ISO 8601

COMMAND_OF_QUEUE: dict[str, type[Contract]] = {RUNS: ExecuteRun, DOCUMENTS: IngestDocument}

_EXCHANGE = RabbitExchange(DEAD_LETTERS, type=ExchangeType.FANOUT, durable=True)
_PUBLISH_SECONDS = 5.0
_MOST_FIELDS = 10

Handler = Callable[[RabbitMessage], Awaitable[None]]


class UnreadableMessage(RejectMessage):
    """A message that can't be read, and why. Uncaught it is FastStream's rejection: a dead letter without its reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(requeue=False)
        self.reason = reason


def reason_of(error: ValidationError, body: bytes) -> str:
    """What is wrong with a body, in a word, and for a wrong field its name and pydantic's word for the mistake; no values."""
    if not body.strip():
        return "empty_body"
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    if any(problem["type"] == "json_invalid" for problem in problems):
        return "not_json"
    if any(problem["loc"] == ("schema_version",) for problem in problems):
        return "unknown_schema_version"
    if any(not problem["loc"] for problem in problems):
        return "not_an_object"
    fields = [f"{'.'.join(map(str, problem['loc']))} {problem['type']}" for problem in problems]
    return f"invalid_fields: {', '.join(fields[:_MOST_FIELDS])}"


def with_dead_letters(broker: RabbitBroker, queue: str, handle: Handler) -> Handler:
    """A handler of a queue's messages that sets aside those which `handle` finds unreadable, so that the queue keeps moving."""

    async def handle_or_set_aside(message: RabbitMessage) -> None:
        try:
            await handle(message)
        except UnreadableMessage as unreadable:
            headers = reason_headers(unreadable.reason, queue, broker.config.app_id or "")
            try:
                await _publish(broker, message, headers)
            except (*BROKER_TROUBLE, NotTaken) as error:
                log.warning("dead_letter.without_reason", cause=type(error).__name__, reason=unreadable.reason)
                raise unreadable from None  # rejected: the broker sets it aside

    return handle_or_set_aside


class NotTaken(Exception):
    """The broker has no queue for dead letters."""


def reason_headers(reason: str, queue: str, service: str) -> HeadersType:
    """The headers of a dead letter that is set aside now."""
    return {
        REASON_HEADER: reason,
        QUEUE_HEADER: queue,
        SERVICE_HEADER: service,
        TIME_HEADER: datetime.now(UTC).isoformat(timespec="seconds"),
    }


async def _publish(broker: RabbitBroker, message: RabbitMessage, headers: HeadersType) -> None:
    """Returns when the broker has it safely. On the broker's own channel: a refusal must not close the one that the message came by."""
    raw = message.raw_message
    confirmation = await broker.publish(
        message.body,
        exchange=_EXCHANGE,
        headers=headers,
        message_id=raw.message_id,
        message_type=raw.type,
        content_type=raw.content_type,
        persist=True,
        timeout=_PUBLISH_SECONDS,
    )
    if not isinstance(confirmation, spec.Basic.Ack):
        raise NotTaken
