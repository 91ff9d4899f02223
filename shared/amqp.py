"""One AMQP connection that comes back by itself.

FastStream consumes wake-ups and questions. Everything else (publishing with confirms, hints, replies) has needs of its own at every
new connection, so each takes a Link: `setup` runs on a fresh channel each time, and whatever was in flight fails at once.
"""

import asyncio
from collections.abc import Awaitable, Callable

import aio_pika
import structlog
from aio_pika.abc import AbstractChannel
from aio_pika.exceptions import AMQPError
from aiormq.exceptions import AMQPError as ProtocolError
from aiormq.exceptions import ChannelInvalidStateError
from yarl import URL

log = structlog.get_logger()

# ChannelInvalidStateError, a RuntimeError, is what a publish on a channel that has just been lost raises.
BROKER_TROUBLE = (OSError, TimeoutError, AMQPError, ProtocolError, ChannelInvalidStateError, asyncio.InvalidStateError)
_RECONNECT_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)
_HEARTBEAT_SECONDS = 15
_SETUP_SECONDS = 10.0

Setup = Callable[[AbstractChannel], Awaitable[None]]


class NotConnected(Exception):
    """The broker is away."""


class Link:
    """A connection with one channel. `run()` keeps it open for ever; `channel` raises NotConnected while it is away."""

    def __init__(
        self, url: str, name: str, setup: Setup, *, confirms: bool = False, on_lost: Callable[[], None] | None = None
    ) -> None:
        self._url = URL(url).update_query(heartbeat=_HEARTBEAT_SECONDS, name=name)
        self._name = name
        self._setup = setup
        self._confirms = confirms
        self._on_lost = on_lost
        self._channel: AbstractChannel | None = None
        self._lost = asyncio.Event()
        self.ready = asyncio.Event()

    @property
    def channel(self) -> AbstractChannel:
        if self._channel is None:
            raise NotConnected(f"{self._name} is not connected")
        return self._channel

    async def run(self) -> None:
        """Connects, waits for the loss, connects again; ends only by cancellation."""
        failures = 0
        while True:
            try:
                await self._connected_once()
                failures = 0
            except BROKER_TROUBLE as error:
                log.warning("broker.unreachable", link=self._name, cause=type(error).__name__)
                failures += 1
            await asyncio.sleep(_RECONNECT_SECONDS[min(failures, len(_RECONNECT_SECONDS) - 1)])

    async def _connected_once(self) -> None:
        # Not aio_pika.connect(): a connection that could not be opened must be closed as well, or its destructor does it some day.
        connection = aio_pika.Connection(self._url)
        try:
            async with asyncio.timeout(_SETUP_SECONDS):
                await connection.connect()
            self._lost.clear()
            connection.close_callbacks.add(self._notice_loss)
            async with asyncio.timeout(_SETUP_SECONDS):
                channel = await connection.channel(publisher_confirms=self._confirms, on_return_raises=self._confirms)
                channel.close_callbacks.add(self._notice_loss)
                underlay = await channel.get_underlay_channel()
                # A queue was deleted under its consumer: a new channel declares it again.
                underlay.on_consumer_cancel_callbacks.add(lambda _frame: self._lost.set())
                await self._setup(channel)
            self._channel = channel
            self.ready.set()
            log.info("broker.connected", link=self._name)
            await self._lost.wait()
            log.warning("broker.lost", link=self._name)
        finally:
            self._channel = None
            self.ready.clear()
            if self._on_lost is not None:
                self._on_lost()
            await _close_quietly(connection)

    def _notice_loss(self, *_: object) -> None:
        self._lost.set()


async def _close_quietly(connection: aio_pika.abc.AbstractConnection) -> None:
    try:
        async with asyncio.timeout(2):
            await connection.close()
    except BROKER_TROUBLE:
        pass  # it is gone already, which is what was wanted
