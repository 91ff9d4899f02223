"""Who is refused a stream, and how streams end: slow clients, deleted streams, revoked keys, a gateway that stops."""

import asyncio

import pytest

from services.gateway.sse import KEEP_ALIVE, RECONNECT, encode_event
from services.gateway.streams import FutureEvent, UnknownStream
from services.gateway.subscriptions import TooManyStreams
from shared.contracts.hints import MessageDelta
from shared.ids import new_id
from tests.unit.gateway.event_table import (
    KEY,
    STREAM,
    TENANT,
    Table,
    encoded,
    frame,
    go_live,
    hint,
    receive,
    streams_over,
    subscribe,
)


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


async def test_a_tenant_and_a_gateway_have_so_many_streams_and_a_closed_one_makes_room() -> None:
    async with streams_over(Table(1), clients=3, clients_per_tenant=2) as streams:
        first, _second = await subscribe(streams), await subscribe(streams)
        with pytest.raises(TooManyStreams):
            await subscribe(streams)
        first.close()
        first.close()
        await subscribe(streams)
        with pytest.raises(TooManyStreams):
            await subscribe(streams)


async def test_all_clients_together_are_bounded_and_only_slow_ones_are_dropped() -> None:
    table = Table(0)
    async with streams_over(table, buffer_bytes_in_all=2000) as streams:
        quick, slow = await subscribe(streams), await subscribe(streams)
        reader, slow_reader = await go_live(quick), await go_live(slow)
        streams.take_hint(hint(table.append(frame(1, size=1500))))
        assert await reader == await slow_reader == encode_event(frame(1, size=1500))
        streams.take_hint(hint(table.append(frame(2, size=1500))))  # both have room: nothing waits for either
        assert await receive(quick) == encode_event(frame(2, size=1500))
        streams.take_hint(hint(table.append(frame(3, size=1500))))
        assert await receive(quick) == encode_event(frame(3, size=1500))
        late = await subscribe(streams, after=0)
        assert await receive(late) is None, "no replay while too much is being sent"
        assert await receive(slow) is None
        for subscription in (quick, slow, late):
            subscription.close()
        again = await subscribe(streams, after=1)
        assert await receive(again) == encode_event(frame(2, size=1500)) + encode_event(frame(3, size=1500))


async def test_a_stream_without_listeners_is_not_watched_any_more() -> None:
    async with streams_over(Table(1), poll_every=0.01) as streams:
        subscription = await subscribe(streams)
        assert streams.is_watched(STREAM)
        subscription.close()
        async with asyncio.timeout(2):
            while streams.is_watched(STREAM):  # noqa: ASYNC110 - nothing tells when it has forgotten
                await asyncio.sleep(0.01)
