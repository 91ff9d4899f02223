"""Waiting for a condition instead of sleeping for a time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def pause(seconds: float) -> None:
    """For loads that come at a certain rate. Whoever waits for something uses `eventually`."""
    await asyncio.sleep(seconds)


async def eventually(probe: Callable[[], Awaitable[T]], *, within: float = 30.0, every: float = 0.05) -> T:
    """The first truthy result of `probe`; fails when there is none within so many seconds."""
    ends = time.monotonic() + within
    while True:
        result = await probe()
        if result:
            return result
        if time.monotonic() > ends:
            raise AssertionError(f"not within {within:g} s: {probe.__qualname__} last gave {result!r}")
        await asyncio.sleep(every)
