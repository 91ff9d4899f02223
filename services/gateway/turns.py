"""Turns: requests that would wait for the same rows in the database wait for each other here, where waiting holds no connection."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from services.gateway.refusals import Refusal

_RETRY_SECONDS = 2


@dataclass(slots=True)
class _Line:
    """Those who have or await a turn at one thing."""

    free: asyncio.Semaphore
    users: int = 0


class Turns:
    """At most `at_once` turns at anything; waiting for one ends with a 503 after `timeout` seconds."""

    def __init__(self, at_once: int, timeout: float) -> None:
        self._at_once = at_once
        self._timeout = timeout
        self._lines: dict[Hashable, _Line] = {}

    @asynccontextmanager
    async def at(self, thing: Hashable) -> AsyncIterator[None]:
        """A turn for the time of the block. Raises Refusal."""
        line = self._lines.setdefault(thing, _Line(asyncio.Semaphore(self._at_once)))
        line.users += 1
        try:
            await self._wait(line.free)
            try:
                yield
            finally:
                line.free.release()
        finally:
            line.users -= 1
            if not line.users:
                del self._lines[thing]

    async def _wait(self, free: asyncio.Semaphore) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await free.acquire()
        except TimeoutError:
            raise Refusal("unavailable", "Too many requests wait for the same.", retry_after=_RETRY_SECONDS) from None
