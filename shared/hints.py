"""Hints: a transient broadcast of what has just been committed. Sending never waits, and nothing depends on arrival."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self
from uuid import UUID

import aiormq
import structlog
from aio_pika import ExchangeType
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

from shared.amqp import BROKER_TROUBLE, Link, NotConnected
from shared.contracts.hints import EventFrame, MessageDelta, RunCancelled, StreamAdvanced
from shared.topology import HINTS, declare_own_queue

log = structlog.get_logger()

_MAX_WAITING = 10_000
_MAX_WAITING_BYTES = 32 * 1024 * 1024
_PUBLISH_SECONDS = 5.0
_BIND_SECONDS = 30.0
_MAX_FRAME_BYTES = 200_000  # larger events are read from the table, no message grows beyond 256 KiB

HintMessage = StreamAdvanced | MessageDelta | RunCancelled


class HintSender(Protocol):
    """Where the core hands its hints to."""

    def send(self, hint: HintMessage) -> None: ...


def stream_advanced(stream_id: UUID, frames: Sequence[EventFrame]) -> StreamAdvanced:
    """The hint for freshly committed events, in order; at least one."""
    fits = sum(len(frame.data) for frame in frames) * 2 < _MAX_FRAME_BYTES
    return StreamAdvanced(stream_id=stream_id, last_seq=frames[-1].seq, events=tuple(frames) if fits else ())


class HintPublisher:
    """Publishes hints from a bounded queue; drops them while the broker is away or slow."""

    def __init__(self, rabbitmq_url: str, service: str) -> None:
        self._link = Link(rabbitmq_url, f"{service}.hints-out", _declare_exchange)
        self._waiting: asyncio.Queue[_Encoded] = asyncio.Queue(_MAX_WAITING)
        self._bytes = 0

    def send(self, hint: HintMessage) -> None:
        """Queues a hint; never waits, and drops it when too many are waiting."""
        encoded = _Encoded.of(hint)
        if not self._waiting.full() and self._bytes + len(encoded.body) <= _MAX_WAITING_BYTES:
            self._bytes += len(encoded.body)
            self._waiting.put_nowait(encoded)

    async def run(self) -> None:
        """Publishes for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._link.run())
            group.create_task(self._publish_for_ever())

    async def _publish_for_ever(self) -> None:
        while True:
            hint = await self._waiting.get()
            self._bytes -= len(hint.body)
            try:
                await _publish(await self._link.channel.get_underlay_channel(), hint)
            except (*BROKER_TROUBLE, NotConnected):
                pass  # a hint: the reader finds the row by its poll


@dataclass(frozen=True, slots=True)
class _Encoded:
    """A hint as it is sent."""

    kind: str
    routing_key: str
    body: bytes

    @classmethod
    def of(cls, hint: HintMessage) -> Self:
        subject = hint.run_id if isinstance(hint, RunCancelled) else hint.stream_id
        return cls(hint.kind, str(subject), hint.model_dump_json().encode())


async def _publish(channel: aiormq.abc.AbstractChannel, hint: _Encoded) -> None:
    """By aiormq itself: these are the most frequent messages of all, and aio-pika's exchange costs as much again as sending."""
    await channel.basic_publish(
        hint.body,
        exchange=HINTS,
        routing_key=hint.routing_key,
        properties=aiormq.spec.Basic.Properties(content_type="application/json", message_type=hint.kind),
        mandatory=False,
        timeout=_PUBLISH_SECONDS,
    )


async def _declare_exchange(channel: AbstractChannel) -> None:
    await channel.declare_exchange(HINTS, ExchangeType.FANOUT, durable=True)


class HintListener:
    """Feeds every hint to `on_hint(kind, routing_key, body)`, undecoded: most hints interest nobody here.

    `on_gap` is called when hints may have been missed.
    """

    def __init__(
        self, rabbitmq_url: str, service: str, on_hint: Callable[[str, str, bytes], None], on_gap: Callable[[], None]
    ) -> None:
        self._on_hint = on_hint
        self._on_gap = on_gap
        self._service = service
        self._queue: AbstractQueue | None = None
        self._link = Link(rabbitmq_url, f"{service}.hints-in", self._subscribe)

    @property
    def ready(self) -> bool:
        return self._link.ready.is_set()

    async def run(self) -> None:
        """Listens for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._link.run())
            group.create_task(self._bind_for_ever())

    async def _subscribe(self, channel: AbstractChannel) -> None:
        queue = await declare_own_queue(channel, self._service, "hints")
        await self._bind(channel, queue)
        await queue.consume(self._take, no_ack=True)
        self._queue = queue
        self._on_gap()

    @staticmethod
    async def _bind(channel: AbstractChannel, queue: AbstractQueue) -> None:
        exchange = await channel.declare_exchange(HINTS, ExchangeType.FANOUT, durable=True)
        await queue.bind(exchange)

    async def _bind_for_ever(self) -> None:
        """An exchange that was deleted takes its bindings with it, and nobody is told."""
        while True:
            await asyncio.sleep(_BIND_SECONDS)
            try:
                if self._queue is not None:
                    await self._bind(self._link.channel, self._queue)
            except (*BROKER_TROUBLE, NotConnected):
                pass  # a new connection binds anew

    async def _take(self, message: AbstractIncomingMessage) -> None:
        try:
            self._on_hint(message.type or "", message.routing_key or "", message.body)
        except ValueError as error:
            log.warning("hint.unreadable", cause=type(error).__name__)
