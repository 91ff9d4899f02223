"""Reading a model's answer from HTTP within its time and size limits."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from typing import Any, TypeVar

import aiohttp
import httpx
import orjson

from services.agent_runner.models.errors import (
    ModelBadResponseError,
    ModelReplyTooLargeError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from services.agent_runner.models.sse import EventReader
from services.agent_runner.models.wire import error_in_stream
from shared.model_registry import Timeouts

_MAX_BODY_BYTES = 8 * 1024 * 1024
_DONE = b"[DONE]"
# aiohttp's own errors come through httpx-aiohttp where it knows no counterpart (a malformed status line).
_TRANSPORT_ERRORS = (httpx.HTTPError, aiohttp.ClientError)

T = TypeVar("T")


class Clock:
    """The time limits of one attempt; `deadline` (loop time) is that of the whole call."""

    def __init__(self, timeouts: Timeouts, deadline: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeouts = timeouts
        self._deadline = deadline
        self._first_byte_by = self._loop.time() + timeouts.first_byte
        self.began = False
        """Whether the first byte of the body is here."""

    async def within(self, waited: Awaitable[T]) -> T:
        """Await a step of the exchange; raises ModelTimeoutError or ModelUnavailableError."""
        allowed = self._loop.time() + self._timeouts.idle if self.began else self._first_byte_by
        try:
            async with asyncio.timeout_at(min(allowed, self._deadline)):
                return await waited
        except TimeoutError:
            raise ModelTimeoutError(self._exceeded(allowed)) from None
        except _TRANSPORT_ERRORS as error:
            # The text of the error names addresses, which are not for the client's eyes; the cause keeps it for logs.
            name = type(error.__cause__ or error).__name__
            raise ModelUnavailableError(f"{'connection lost' if self.began else 'no connection'} ({name})") from error

    def _exceeded(self, allowed: float) -> str:
        if self._deadline <= allowed:
            return f"not finished after {self._timeouts.total:g} s"
        if self.began:
            return f"silent for {self._timeouts.idle:g} s"
        return f"no first byte after {self._timeouts.first_byte:g} s"


async def read_chunks(response: httpx.Response, clock: Clock) -> AsyncGenerator[dict[str, Any], None]:
    """The JSON objects of the stream; a server that answers with one JSON document instead gives one object."""
    content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type == "application/json":
        yield _parsed(await read_at_most(response, clock, _MAX_BODY_BYTES))
        return
    if content_type not in ("", "text/event-stream", "text/plain", "application/octet-stream"):
        raise ModelBadResponseError(f"expected an event stream, got {content_type}")
    events = EventReader()
    async for read in _reads(response, clock):
        for event in events.feed(read):
            if event == _DONE:
                return
            yield _parsed(event)
    for event in events.close():
        if event != _DONE:
            yield _parsed(event)


async def read_at_most(response: httpx.Response, clock: Clock, limit: int) -> bytes:
    """The first `limit` bytes of the body."""
    body = bytearray()
    async for read in _reads(response, clock):
        body += read
        if len(body) >= limit:
            break
    return bytes(body[:limit])


async def _reads(response: httpx.Response, clock: Clock) -> AsyncIterator[bytes]:
    size = 0
    body = response.aiter_bytes()
    while (read := await clock.within(anext(body, None))) is not None:
        clock.began = True
        size += len(read)
        if size > _MAX_BODY_BYTES:
            raise ModelReplyTooLargeError(f"more than {_MAX_BODY_BYTES} bytes of answer")
        yield read


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = _parsed_leniently(text)
    if not isinstance(value, dict):
        raise ModelBadResponseError("a line of the stream is not a JSON object")
    if error := value.get("error"):
        raise error_in_stream(error)
    return value


def _parsed_leniently(text: bytes) -> object:
    """As the standard library reads it, which lets the halves of a split surrogate pair pass."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ModelBadResponseError("a line of the stream is not JSON") from None
