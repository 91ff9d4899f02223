"""Streams over a table in memory: what a client gets, whatever hints do."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from services.gateway.settings import StreamSettings
from services.gateway.sse import KEEP_ALIVE, RECONNECT, encode_event
from services.gateway.streams import FutureEvent, Streams, UnknownStream
from services.gateway.subscriptions import EventsUnavailable, Subscription
from shared.contracts.hints import EventFrame, MessageDelta, StreamAdvanced
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
    streams = Streams(table, table, StreamSettings.model_validate({"poll_every": 30, **settings}))
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


async def test_replays_from_any_place_in_pages() -> None:
    async with streams_over(Table(10), page_events=3) as streams:
        await receive_until(await subscribe(streams, after=0), encoded(1, 10))
        await receive_until(await subscribe(streams, after=7), encoded(8, 10))


async def test_without_a_place_starts_with_the_next_event() -> None:
    table = Table(4)
    async with streams_over(table) as streams:
        reader = await go_live(await subscribe(streams))
        streams.take_hint(hint(table.append()))
        assert await reader == encoded(5, 5)


async def test_contiguous_hints_need_no_read() -> None:
    table = Table(2)
    async with streams_over(table) as streams:
        subscription = await subscribe(streams)
        reader = await go_live(subscription)
        streams.take_hint(hint(table.append(), table.append()))
        assert await reader == encoded(3, 4)
        assert table.reads == 0


async def test_a_gap_is_read_from_the_table_and_nothing_comes_twice() -> None:
    table = Table(1)
    async with streams_over(table) as streams:
        subscription = await subscribe(streams, after=0)
        await receive_until(subscription, encoded(1, 1))
        second, third, fourth = table.append(), table.append(), table.append()
        streams.take_hint(hint(third, fourth))  # the second's hint is late
        await receive_until(subscription, encoded(2, 4))
        streams.take_hint(hint(second))
        streams.take_hint(hint(third))
        streams.take_hint(hint(table.append()))
        await receive_until(subscription, encoded(5, 5))


async def test_events_too_large_for_a_hint_are_read() -> None:
    table = Table(1)
    async with streams_over(table) as streams:
        subscription = await subscribe(streams)
        table.append()
        streams.take_hint(StreamAdvanced(stream_id=STREAM, last_seq=2))
        await receive_until(subscription, encoded(2, 2))


async def test_the_poll_delivers_what_no_hint_told() -> None:
    table = Table(1)
    async with streams_over(table, poll_every=0.01) as streams:
        reader = await go_live(await subscribe(streams))
        table.append()
        assert await reader == encoded(2, 2)


async def test_a_gap_in_hints_makes_it_look_at_once() -> None:
    table = Table(1)
    async with streams_over(table) as streams:
        subscription = await subscribe(streams)
        table.append()
        streams.note_gap()
        await receive_until(subscription, encoded(2, 2))


async def test_a_hint_that_comes_while_subscribing_is_not_lost() -> None:
    table = Table(1)
    async with streams_over(table) as streams:
        subscribing = asyncio.ensure_future(subscribe(streams))
        await asyncio.sleep(0)  # it has asked for the position and waits
        streams.take_hint(StreamAdvanced(stream_id=STREAM, last_seq=2))
        subscription = await subscribing
        table.append()
        streams.take_hint(hint(frame(2)))
        await receive_until(subscription, encoded(2, 2))


async def test_clients_at_different_places_get_the_same_bytes() -> None:
    table = Table(6)
    async with streams_over(table, page_events=2) as streams:
        late, early = await subscribe(streams, after=5), await subscribe(streams, after=0)
        await receive_until(late, encoded(6, 6))
        streams.take_hint(hint(table.append()))
        await receive_until(late, encoded(7, 7))
        await receive_until(early, encoded(1, 7))


async def test_a_place_ahead_of_the_hints_gets_nothing_twice() -> None:
    table = Table(2)
    async with streams_over(table) as streams:
        await subscribe(streams)  # watches with position 2
        table.append(), table.append()
        ahead = await subscribe(streams, after=4)
        streams.take_hint(hint(frame(3), frame(4)))
        streams.take_hint(hint(table.append()))
        await receive_until(ahead, encoded(5, 5))


@pytest.mark.parametrize("after", [3, 10**12])
async def test_the_future_is_refused(after: int) -> None:
    async with streams_over(Table(2)) as streams:
        with pytest.raises(FutureEvent):
            await subscribe(streams, after=after)


async def test_another_tenants_stream_is_unknown_even_while_it_is_watched() -> None:
    table = Table(2)
    async with streams_over(table) as streams:
        reader = await go_live(await subscribe(streams))
        with pytest.raises(UnknownStream):
            await streams.subscribe(new_id(), STREAM, KEY, after=0)
        streams.take_hint(hint(table.append()))
        assert await reader == encoded(3, 3)


async def test_a_client_that_does_not_read_is_dropped_and_the_others_are_not() -> None:
    table = Table(0)
    async with streams_over(table, buffer_events=4) as streams:
        slow, quick = await subscribe(streams), await subscribe(streams)
        slow_reader, reader = await go_live(slow), await go_live(quick)
        streams.take_hint(hint(table.append()))
        assert await slow_reader == await reader == encoded(1, 1)
        for seq in range(2, 8):
            streams.take_hint(hint(table.append()))
            assert await receive(quick) == encoded(seq, seq)
        assert await receive(slow) is None


async def test_the_buffer_is_bounded_in_bytes_but_takes_one_large_event() -> None:
    table = Table(0)
    async with streams_over(table, buffer_bytes=1000) as streams:
        subscription = await subscribe(streams)
        reader = await go_live(subscription)
        streams.take_hint(hint(table.append(frame(1, size=5000))))
        assert await reader == encode_event(frame(1, size=5000))
        streams.take_hint(hint(table.append(frame(2, size=5000))))
        streams.take_hint(hint(table.append(frame(3, size=5000))))
        assert await receive(subscription) is None


async def test_deltas_only_for_those_who_ask() -> None:
    table = Table(1)
    delta = MessageDelta(stream_id=STREAM, message_id=new_id(), offset=3, text="né\n")
    async with streams_over(table) as streams:
        with_deltas, without = await subscribe(streams, deltas=True), await subscribe(streams)
        delta_reader, reader = await go_live(with_deltas), await go_live(without)
        streams.take_delta(delta)
        chunk = await delta_reader
        assert chunk is not None
        assert chunk.startswith(b"event: message.delta\ndata: {")
        assert b'"offset":3' in chunk
        assert b"id:" not in chunk
        streams.take_hint(hint(table.append()))
        assert await reader == encoded(2, 2)


async def test_silence_is_filled_with_comments() -> None:
    async with streams_over(Table(1), keep_alive=0.02) as streams:
        assert await receive(await subscribe(streams)) == KEEP_ALIVE


async def test_a_deleted_stream_ends() -> None:
    table = Table(1)
    async with streams_over(table, poll_every=0.01) as streams:
        reader = await go_live(await subscribe(streams))
        table.events = None
        assert await reader is None


async def test_a_revoked_key_ends_its_streams_only() -> None:
    table = Table(1)
    async with streams_over(table, key_check_every=0.01) as streams:
        revoked_reader = await go_live(await subscribe(streams))
        reader = await go_live(await streams.subscribe(TENANT, STREAM, b"other", after=None))
        table.revoked = {KEY}
        assert await revoked_reader is None
        streams.take_hint(hint(table.append()))
        assert await reader == encoded(2, 2)


async def test_at_the_end_clients_are_sent_away_with_what_waits_for_them() -> None:
    table = Table(1)
    async with streams_over(table) as streams:
        subscription = await subscribe(streams)
        reader = await go_live(subscription)
        streams.take_hint(hint(table.append()))
        streams.stop()
        assert await reader == encoded(2, 2) + RECONNECT
        assert await receive(subscription) is None
        assert await receive(await subscribe(streams)) == RECONNECT


async def test_a_table_that_is_away_ends_a_replay_and_not_a_live_stream() -> None:
    table = Table(3)
    async with streams_over(table, poll_every=0.01) as streams:
        live = await subscribe(streams)
        reader = await go_live(live)
        table.available = False
        assert await receive(await subscribe(streams, after=0)) is None
        table.append()
        table.available = True
        assert await reader == encoded(4, 4)


async def test_a_stream_without_listeners_is_not_watched_any_more() -> None:
    async with streams_over(Table(1), poll_every=0.01) as streams:
        subscription = await subscribe(streams)
        assert streams.is_watched(STREAM)
        subscription.close()
        async with asyncio.timeout(2):
            while streams.is_watched(STREAM):  # noqa: ASYNC110 - nothing tells when it has forgotten
                await asyncio.sleep(0.01)
