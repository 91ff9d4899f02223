"""Server-sent events as bytes, and the bare ASGI response that sends them.

No StreamingResponse: per client it costs twice the memory, and a fan-out to a thousand clients takes several times as long.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

from shared.contracts.hints import EventFrame

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

OPENING = b"retry: 2000\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
RECONNECT = b"event: reconnect\ndata: {}\n\n"

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


def encode_event(frame: EventFrame) -> bytes:
    """A stored event, with its seq as the id from which a client resumes."""
    return f"id: {frame.seq}\nevent: {frame.type}\ndata: {_one_line(frame.data)}\n\n".encode()


def encode_transient(event_type: str, data: str) -> bytes:
    """Something that is not stored: without an id, so that it moves no client's place."""
    return f"event: {event_type}\ndata: {_one_line(data)}\n\n".encode()


def _one_line(data: str) -> str:
    # Inside JSON strings line ends are escaped, so one that is left is white space between tokens.
    return data.replace("\r", " ").replace("\n", " ") if "\n" in data or "\r" in data else data


class Source(Protocol):
    """Where a response gets its bytes."""

    async def next(self) -> bytes | None:
        """The next bytes to send; None when the stream is over."""
        ...

    def close(self) -> None:
        """The client is gone, or the stream is over."""
        ...


class EventStream:
    """An ASGI application that sends one source to one client until either ends."""

    __slots__ = ("_gave_up", "_send_timeout", "_source", "_task")

    def __init__(self, source: Source, send_timeout: float) -> None:
        self._source = source
        self._send_timeout = send_timeout
        self._task: asyncio.Task[None] | None = None
        self._gave_up = False

    async def __call__(self, _scope: Message, receive: Receive, send: Send) -> None:
        self._task = asyncio.current_task()
        listener = asyncio.ensure_future(self._close_when_gone(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            await self._send(send, OPENING)
            while (chunk := await self._source.next()) is not None:
                await self._send(send, chunk)
            await self._send(send, b"", more=False)
        except asyncio.CancelledError:
            if not self._gave_up:
                raise
        except OSError:
            pass  # the client is gone; it resumes from the table
        finally:
            listener.cancel()
            self._source.close()

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        # A bare timer: asyncio.timeout costs three times as much, which a fan-out to a thousand clients feels.
        limit = asyncio.get_running_loop().call_later(self._send_timeout, self._give_up)
        try:
            await send({"type": "http.response.body", "body": body, "more_body": more})
        finally:
            limit.cancel()

    def _give_up(self) -> None:
        """The client takes nothing any more; it resumes from the table."""
        self._gave_up = True
        if self._task is not None:
            self._task.cancel()

    async def _close_when_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._source.close()
