"""A client of the event streams that forgets nothing: every event it got, and the text that deltas made."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import orjson


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event: its id (None for deltas), its type and the bytes of its data."""

    id: int | None
    type: str
    raw: str

    @property
    def data(self) -> dict[str, Any]:
        value: dict[str, Any] = orjson.loads(self.raw)
        return value


@asynccontextmanager
async def open_stream(
    client: httpx.AsyncClient, path: str, *, last_event_id: int | None = None, deltas: bool = False
) -> AsyncIterator[AsyncIterator[SseEvent]]:
    """The events of a stream, after `last_event_id` when given. Raises httpx's error for a status other than 200."""
    headers = {} if last_event_id is None else {"Last-Event-ID": str(last_event_id)}
    params = {"deltas": "true"} if deltas else {}
    timeout = httpx.Timeout(60, connect=10)
    async with client.stream("GET", path, headers=headers, params=params, timeout=timeout) as response:
        if response.status_code != 200:
            await response.aread()
        response.raise_for_status()
        yield _events(response)


async def _events(response: httpx.Response) -> AsyncIterator[SseEvent]:
    event_id: int | None = None
    kind, data = "message", list[str]()
    async for line in response.aiter_lines():
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                yield SseEvent(event_id, kind, "\n".join(data))
            event_id, kind, data = None, "message", []
        elif name == "id":
            event_id = int(value)
        elif name == "event":
            kind = value
        elif name == "data":
            data.append(value)


async def read_until(
    client: httpx.AsyncClient, path: str, last_type: str, *, last_event_id: int = 0, count: int = 1
) -> list[SseEvent]:
    """All events with an id after `last_event_id`, up to and including the `count`-th of type `last_type`."""
    events: list[SseEvent] = []
    async with open_stream(client, path, last_event_id=last_event_id) as stream:
        async for event in stream:
            if event.id is not None:
                events.append(event)
                count -= event.type == last_type
                if count == 0:
                    return events
    raise AssertionError(f"the stream ended before {last_type}; it had {[e.type for e in events]}")
