"""Event streams: what a client sees when it connects, listens, falls behind and comes back.

Every event is a row with a contiguous seq, so a client's place is one number. A subscription reads the table from its place until it has
caught up with its stream, and is live from then on: events reach it through memory, each encoded once. They come from hints when they
continue the stream without a gap, else from the table. Hints may be lost; a poll of all watched streams is the guarantee.
Text deltas are only for those who are live and ask for them.

A subscription ends when its stream is deleted, its key is revoked, it is too slow (its buffer is bounded), or the gateway stops.
Whoever comes back with the last seq misses nothing, on any replica.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Protocol
from uuid import UUID

from services.gateway.settings import StreamSettings
from services.gateway.sse import RECONNECT, encode_transient
from services.gateway.subscriptions import Audience, EventsUnavailable, EventTable, Stream, Subscription
from shared.contracts.hints import MessageDelta, StreamAdvanced
from shared.json_text import to_json


class UnknownStream(Exception):
    """The tenant has no such stream."""


class FutureEvent(Exception):
    """The client names an event that has not happened yet."""


class KeyCheck(Protocol):
    """Which API keys still work."""

    async def valid_among(self, key_hashes: Collection[bytes]) -> Collection[bytes]: ...


class Streams:
    """All streams of one kind that somebody here listens to."""

    def __init__(self, table: EventTable, keys: KeyCheck, audience: Audience, settings: StreamSettings) -> None:
        self._table = table
        self._keys = keys
        self._audience = audience
        self._settings = settings
        self._streams: dict[UUID, Stream] = {}
        self._refreshes: set[asyncio.Task[None]] = set()
        self._poll_now = asyncio.Event()
        self._stopped = False

    async def subscribe(
        self, tenant_id: UUID, stream_id: UUID, key_hash: bytes, *, after: int | None, deltas: bool = False
    ) -> Subscription:
        """A subscription that starts behind `after`, or with the next event when that is None.

        Raises UnknownStream, FutureEvent, TooManyStreams and EventsUnavailable.
        """
        stream = await self._watch(tenant_id, stream_id)
        subscription = Subscription(self._table, stream, self._audience, self._settings, key_hash, deltas=deltas)
        stream.subscriptions.add(subscription)
        try:
            subscription.start_after(await self._place(stream, after))
        except BaseException:
            subscription.close()
            raise
        if self._stopped:
            subscription.end(RECONNECT)
        return subscription

    async def _watch(self, tenant_id: UUID, stream_id: UUID) -> Stream:
        """The watched stream; the caller subscribes to it before anything else is awaited, and reads its place after that.

        A stream is watched only once it is known to be the tenant's: nobody else can stand in its way.
        """
        if stream_id not in self._streams and await self._table.position(tenant_id, stream_id) is None:
            raise UnknownStream
        stream = self._streams.setdefault(stream_id, Stream(tenant_id, stream_id))
        if stream.tenant_id != tenant_id:
            raise UnknownStream
        return stream

    async def _place(self, stream: Stream, after: int | None) -> int:
        newest = await self._table.position(stream.tenant_id, stream.stream_id)
        if newest is None:
            raise UnknownStream
        if stream.position is None:
            stream.position = newest
        self._refresh_if_behind(stream, newest)
        newest = max(newest, stream.position)
        if after is not None and after > newest:
            raise FutureEvent
        return newest if after is None else after

    def is_watched(self, stream_id: UUID) -> bool:
        return stream_id in self._streams

    def take_hint(self, hint: StreamAdvanced) -> None:
        """Events were committed, here or elsewhere."""
        stream = self._streams.get(hint.stream_id)
        if stream is not None:
            stream.take(hint.events)
            self._refresh_if_behind(stream, hint.last_seq)

    def take_delta(self, hint: MessageDelta) -> None:
        """A model is producing text."""
        stream = self._streams.get(hint.stream_id)
        if stream is not None:
            chunk = encode_transient(hint.kind, _delta_data(hint))
            for subscription in stream.subscriptions:
                subscription.push_delta(chunk)

    def note_gap(self) -> None:
        """Hints may have been lost: look at once."""
        self._poll_now.set()

    def stop(self) -> None:
        """Sends every client away, to another replica."""
        self._stopped = True
        for subscription in self._all_subscriptions():
            subscription.end(RECONNECT)

    async def run(self) -> None:
        """Polls, keeps connections alive and checks keys, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._poll_for_ever())
            group.create_task(self._keep_alive_for_ever())
            group.create_task(self._check_keys_for_ever())

    async def _poll_for_ever(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._settings.poll_every):
                    await self._poll_now.wait()
            except TimeoutError:
                pass
            self._poll_now.clear()
            # A stream that nobody listens to any more is not watched any more.
            self._streams = {key: stream for key, stream in self._streams.items() if stream.subscriptions}
            if self._streams:
                await self._poll(list(self._streams.values()))

    async def _poll(self, watched: Sequence[Stream]) -> None:
        try:
            positions = await self._table.positions([stream.stream_id for stream in watched])
        except EventsUnavailable:
            return  # the next poll finds the same
        for stream in watched:
            position = positions.get(stream.stream_id)
            if position is not None:
                self._refresh_if_behind(stream, position)
            elif stream.position is not None:
                for subscription in list(stream.subscriptions):
                    subscription.end()

    def _refresh_if_behind(self, stream: Stream, newest: int) -> None:
        stream.wanted = max(stream.wanted, newest)
        if stream.is_behind and not stream.refreshing:
            stream.refreshing = True
            task = asyncio.ensure_future(self._refresh(stream))
            self._refreshes.add(task)
            task.add_done_callback(self._refreshes.discard)

    async def _refresh(self, stream: Stream) -> None:
        try:
            while stream.is_behind and stream.subscriptions:
                before = stream.position or 0
                stream.take(
                    await self._table.read(stream.tenant_id, stream.stream_id, before, self._settings.page_events)
                )
                if stream.position == before:
                    stream.wanted = before  # somebody told of an event that isn't there
        except EventsUnavailable:
            pass  # the next poll comes here again
        finally:
            stream.refreshing = False

    async def _keep_alive_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(1.0, self._settings.keep_alive))
            now = loop.time()
            for subscription in self._all_subscriptions():
                subscription.keep_alive(now)

    async def _check_keys_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.key_check_every)
            used = {subscription.key_hash for subscription in self._all_subscriptions()}
            try:
                valid = set(await self._keys.valid_among(used)) if used else used
            except EventsUnavailable:
                continue
            for subscription in self._all_subscriptions():
                if subscription.key_hash in used - valid:
                    subscription.end()

    def _all_subscriptions(self) -> list[Subscription]:
        return [subscription for stream in self._streams.values() for subscription in stream.subscriptions]


def _delta_data(hint: MessageDelta) -> str:
    """Like an event's data, without seq and time: a delta is no event and is never replayed."""
    fields = hint.model_dump(mode="json", include={"run_id", "message_id", "offset", "text"})
    return to_json({"session_id": hint.stream_id, "type": hint.kind, **fields})
