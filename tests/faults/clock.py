"""Faults that last for a time."""

import asyncio
import contextlib


async def lasts(seconds: float) -> None:
    """Returns after so many seconds: how long a fault goes on, never a way to wait for something."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), seconds)
