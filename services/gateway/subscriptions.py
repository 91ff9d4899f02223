"""One client's place in an event stream, and the streams that the clients of this process listen to together."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol
from uuid import UUID

import structlog

from services.gateway.settings import StreamSettings
from services.gateway.sse import KEEP_ALIVE, encode_event
from shared.contracts.hints import EventFrame

log = structlog.get_logger()


class EventsUnavailable(Exception):
    """The table can't be read now."""


class EventTable(Protocol):
    """Where events are kept. All methods may raise EventsUnavailable."""

    async def position(self, tenant_id: UUID, stream_id: UUID) -> int | None:
        """The seq of a stream's newest event, None when the tenant has no such stream."""
        ...

    async def positions(self, stream_ids: Collection[UUID]) -> Mapping[UUID, int]:
        """The same for many; deleted streams are left out."""
        ...

    async def read(self, tenant_id: UUID, stream_id: UUID, after: int, limit: int) -> Sequence[EventFrame]:
        """The events that follow a seq, at most `limit`, in order."""
        ...


class Stream:
    """One watched stream. `position` is the seq of the newest event that live subscriptions have been given."""

    def __init__(self, tenant_id: UUID, stream_id: UUID) -> None:
        self.tenant_id = tenant_id
        self.stream_id = stream_id
        self.position: int | None = None
        self.wanted = 0  # the newest seq that anybody has told of
        self.refreshing = False
        self.subscriptions: set[Subscription] = set()

    def take(self, frames: Sequence[EventFrame]) -> None:
        """Hands frames that continue the stream to its live subscriptions; older ones are skipped, and none after a gap is taken."""
        for frame in frames:
            if self.position is None or frame.seq > self.position + 1:
                return
            if frame.seq <= self.position:
                continue
            self.position = frame.seq
            chunk = encode_event(frame)
            for subscription in self.subscriptions:
                subscription.push_event(frame.seq, chunk)

    @property
    def is_behind(self) -> bool:
        return self.position is not None and self.wanted > self.position


class Subscription:
    """One client's place in a stream: a source of bytes for the response."""

    def __init__(
        self, table: EventTable, stream: Stream, key_hash: bytes, settings: StreamSettings, *, deltas: bool
    ) -> None:
        self._table = table
        self._stream = stream
        self._settings = settings
        self._deltas = deltas
        self._seq = 0
        self._live = False
        self._ended = False
        self._buffer: list[bytes] = []
        self._buffered = 0
        self._wake = asyncio.Event()
        self.key_hash = key_hash
        self.last_push = asyncio.get_running_loop().time()

    def start_after(self, seq: int) -> None:
        self._seq = seq

    async def next(self) -> bytes | None:
        """The next bytes to send; None at the end."""
        while not self._buffer and not self._ended:
            if self._live:
                await self._wake.wait()
                self._wake.clear()
            elif (page := await self._catch_up()) is not None:
                return page
        if not self._buffer:
            return None
        chunk = b"".join(self._buffer)
        self._buffer.clear()
        self._buffered = 0
        return chunk

    async def _catch_up(self) -> bytes | None:
        """A page from the table, or None after this subscription has gone live or ended."""
        stream = self._stream
        if stream.position is not None and self._seq >= stream.position:
            self._live = True  # nothing was awaited since the comparison: no event can fall between
            return None
        try:
            frames = await self._table.read(stream.tenant_id, stream.stream_id, self._seq, self._settings.page_events)
        except EventsUnavailable:
            self.end()
            return None
        if not frames:
            self.end()  # the stream was deleted under us
            return None
        self._seq = frames[-1].seq
        stream.take(frames)
        return b"".join(map(encode_event, frames))

    def push_event(self, seq: int, chunk: bytes) -> None:
        """Gives a live client the event that follows its place; it may be ahead of its stream, never behind."""
        if self._live and seq > self._seq:
            self._seq = seq
            self._push(chunk)

    def push_delta(self, chunk: bytes) -> None:
        """Deltas may be lost: one that finds the buffer half full is."""
        if self._live and self._deltas and self._buffered < self._settings.buffer_bytes // 2:
            self._push(chunk)

    def keep_alive(self, now: float) -> None:
        if self._live and now - self.last_push >= self._settings.keep_alive:
            self._push(KEEP_ALIVE)

    def _push(self, chunk: bytes) -> None:
        if self._ended:
            return
        too_many = len(self._buffer) >= self._settings.buffer_events
        # One event may be larger than the whole buffer: it is sent when nothing else waits.
        too_large = self._buffer and self._buffered + len(chunk) > self._settings.buffer_bytes
        if too_many or too_large:
            log.warning("stream.dropped", stream=str(self._stream.stream_id), waiting=len(self._buffer))
            self._buffer.clear()
            self.end()
            return
        self._buffer.append(chunk)
        self._buffered += len(chunk)
        self.last_push = asyncio.get_running_loop().time()
        self._wake.set()

    def end(self, farewell: bytes | None = None) -> None:
        """Sends what is waiting, a last word if there is one, and no more."""
        if farewell is not None and not self._ended:
            self._buffer.append(farewell)
        self._ended = True
        self._wake.set()

    def close(self) -> None:
        self.end()
        self._stream.subscriptions.discard(self)
