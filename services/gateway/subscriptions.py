"""One client's place in an event stream, and the streams that the clients of this process listen to together."""

import asyncio
from collections import Counter
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


class TooManyStreams(Exception):
    """This gateway, or the tenant at it, has as many streams open as it may."""


class Audience:
    """All clients of this process: how many there are, and how many bytes wait for them."""

    def __init__(self, settings: StreamSettings) -> None:
        self._settings = settings
        self._of_tenant: Counter[UUID] = Counter()
        self.waiting_bytes = 0

    def join(self, tenant_id: UUID) -> None:
        """One more client. Raises TooManyStreams."""
        limits = self._settings
        if self._of_tenant[tenant_id] >= limits.clients_per_tenant or self._of_tenant.total() >= limits.clients:
            raise TooManyStreams
        self._of_tenant[tenant_id] += 1

    def leave(self, tenant_id: UUID) -> None:
        self._of_tenant[tenant_id] -= 1
        if not self._of_tenant[tenant_id]:
            del self._of_tenant[tenant_id]

    @property
    def is_full(self) -> bool:
        return self.waiting_bytes >= self._settings.buffer_bytes_in_all


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

    __slots__ = ("position", "refreshing", "stream_id", "subscriptions", "tenant_id", "wanted")

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

    # There are thousands of them, and most of the time nothing happens to any.
    __slots__ = (
        "_audience",
        "_buffer",
        "_buffered",
        "_closed",
        "_deltas",
        "_ended",
        "_live",
        "_sending",
        "_seq",
        "_settings",
        "_stream",
        "_table",
        "_wake",
        "key_hash",
        "last_push",
    )

    def __init__(
        self,
        table: EventTable,
        stream: Stream,
        audience: Audience,
        settings: StreamSettings,
        key_hash: bytes,
        *,
        deltas: bool,
    ) -> None:
        """One more client of the stream. Raises TooManyStreams."""
        audience.join(stream.tenant_id)
        self._table = table
        self._stream = stream
        self._audience = audience
        self._settings = settings
        self._deltas = deltas
        self._seq = 0
        self._live = False
        self._ended = False
        self._closed = False
        self._buffer: list[bytes] = []
        self._buffered = 0
        self._sending = 0  # bytes that were given out last
        self._wake: asyncio.Future[None] | None = None
        self.key_hash = key_hash
        self.last_push = asyncio.get_running_loop().time()

    def start_after(self, seq: int) -> None:
        self._seq = seq

    async def next(self) -> bytes | None:
        """The next bytes to send, when those before are sent; None at the end."""
        self._count(-self._sending)
        self._sending = 0
        while not self._buffer and not self._ended:
            if self._live:
                await self._woken()
            elif (page := await self._catch_up()) is not None:
                self._count(len(page))
                self._sending = len(page)
                return page
        if not self._buffer:
            return None
        chunk = b"".join(self._buffer)
        self._buffer.clear()
        self._sending, self._buffered = self._buffered, 0
        return chunk

    async def _woken(self) -> None:
        # A bare future: an asyncio.Event keeps 0.7 kB of queue for its one waiter.
        self._wake = asyncio.get_running_loop().create_future()
        try:
            await self._wake
        finally:
            self._wake = None

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _count(self, size: int) -> None:
        if not self._closed:
            self._audience.waiting_bytes += size

    async def _catch_up(self) -> bytes | None:
        """A page from the table, or None after this subscription has gone live or ended."""
        stream = self._stream
        if stream.position is not None and self._seq >= stream.position:
            self._live = True  # nothing was awaited since the comparison: no event can fall between
            return None
        if self._audience.is_full:
            self._drop()
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
        too_large = self._buffered + len(chunk) > self._settings.buffer_bytes or self._audience.is_full
        if too_many or (self._buffer and too_large):
            self._drop()
            return
        self._buffer.append(chunk)
        self._buffered += len(chunk)
        self._count(len(chunk))
        self.last_push = asyncio.get_running_loop().time()
        self._wake_up()

    def _drop(self) -> None:
        """Ends without what waits: the client comes back for it."""
        log.warning("stream.dropped", stream=str(self._stream.stream_id), waiting=len(self._buffer))
        self._buffer.clear()
        self._count(-self._buffered)
        self._buffered = 0
        self.end()

    def end(self, farewell: bytes | None = None) -> None:
        """Sends what is waiting, a last word if there is one, and no more."""
        if farewell is not None and not self._ended:
            self._buffer.append(farewell)
        self._ended = True
        self._wake_up()

    def close(self) -> None:
        """The client is gone; again: nothing."""
        self.end()
        if not self._closed:
            self._count(-self._sending - self._buffered)
            self._closed = True
            self._audience.leave(self._stream.tenant_id)
            self._stream.subscriptions.discard(self)
