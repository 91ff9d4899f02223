"""Streams over a table in memory: every event once and in order, whatever hints do."""

import asyncio

from shared.contracts.hints import StreamAdvanced
from tests.unit.gateway.event_table import (
    STREAM,
    Table,
    encoded,
    frame,
    go_live,
    hint,
    receive_until,
    streams_over,
    subscribe,
)


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
