"""An event table in memory, and how tests follow streams over it."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

from services.gateway.settings import StreamSettings
from services.gateway.sse import encode_event
from services.gateway.streams import Streams
from services.gateway.subscriptions import Audience, EventsUnavailable, Subscription
from shared.contracts.hints import EventFrame, StreamAdvanced
from shared.ids import new_id

TENANT = new_id()
STREAM = new_id()
KEY = b"key"


def frame(seq: int, size: int = 2) -> EventFrame:
    return EventFrame(seq=seq, type="message.created", data=f'{{"seq":{seq},"text":"{"x" * size}"}}')


class Table:
    """Events in memory; also says which keys work."""

    def __init__(self, count: int = 0) -> None:
        self.events: list[EventFrame] | None = [frame(seq) for seq in range(1, count + 1)]
        self.reads = 0
        self.available = True
        self.revoked: set[bytes] = set()

    def append(self, event: EventFrame | None = None) -> EventFrame:
        assert self.events is not None
        event = event or frame(len(self.events) + 1)
        self.events.append(event)
        return event

    async def position(self, tenant_id: UUID, stream_id: UUID) -> int | None:
        await asyncio.sleep(0)
        if (tenant_id, stream_id) != (TENANT, STREAM) or self.events is None:
            return None
        return len(self.events)

    async def positions(self, stream_ids: Collection[UUID]) -> Mapping[UUID, int]:
        self._check()
        return {STREAM: len(self.events)} if STREAM in stream_ids and self.events is not None else {}

    async def read(self, tenant_id: UUID, stream_id: UUID, after: int, limit: int) -> Sequence[EventFrame]:
        self._check()
        self.reads += 1
        await asyncio.sleep(0)
        return (self.events or [])[after : after + limit]

    async def valid_among(self, key_hashes: Collection[bytes]) -> Collection[bytes]:
        return set(key_hashes) - self.revoked

    def _check(self) -> None:
        if not self.available:
            raise EventsUnavailable


@asynccontextmanager
async def streams_over(table: Table, **settings: float) -> AsyncIterator[Streams]:
    """Streams at work. Polls are rare unless a test asks for them, so that hints are seen to work."""
    limits = StreamSettings.model_validate({"poll_every": 30, **settings})
    streams = Streams(table, table, Audience(limits), limits)
    task = asyncio.ensure_future(streams.run())
    yield streams
    task.cancel()
    await asyncio.wait([task])


async def subscribe(streams: Streams, after: int | None = None, *, deltas: bool = False) -> Subscription:
    return await streams.subscribe(TENANT, STREAM, KEY, after=after, deltas=deltas)


async def receive(subscription: Subscription) -> bytes | None:
    async with asyncio.timeout(2):
        return await subscription.next()


async def receive_until(subscription: Subscription, expected: bytes) -> None:
    got = b""
    while len(got) < len(expected):
        chunk = await receive(subscription)
        assert chunk is not None, "the stream ended early"
        got += chunk
    assert got == expected


def encoded(first: int, last: int) -> bytes:
    return b"".join(encode_event(frame(seq)) for seq in range(first, last + 1))


def hint(*frames: EventFrame) -> StreamAdvanced:
    return StreamAdvanced(stream_id=STREAM, last_seq=frames[-1].seq, events=frames)


async def go_live(subscription: Subscription) -> "asyncio.Task[bytes | None]":
    """A reader that waits for what is to come."""
    reader = asyncio.ensure_future(subscription.next())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not reader.done()
    return reader
