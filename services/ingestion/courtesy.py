"""Courtesy: where people's questions and documents share a machine, documents make room while it is short of processors."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

_LONGEST_PAUSE = 5.0
_ANSWER_HOLDS_SECONDS = 1.0
# Linux: "0.42 0.51 0.60 3/512 12345", and the 3 are those that run or are ready to at this moment.
_LOAD = Path("/proc/loadavg")


def machine_is_busy() -> bool:
    """Whether more is ready to run on this machine than it has processors: now, where that is known, else over the last minute."""
    processors = os.cpu_count() or 1
    try:
        return int(_LOAD.read_text().split()[3].split("/")[0]) > processors
    except (OSError, ValueError, IndexError):
        return os.getloadavg()[0] > processors


class Courtesy:
    """Pauses after a piece of work, `factor` times as long as it took, while somebody waits for an answer and the machine is busy.

    `somebody_waits` is asked once a second at most.
    """

    def __init__(
        self,
        factor: float,
        somebody_waits: Callable[[], Awaitable[bool]],
        is_busy: Callable[[], bool] = machine_is_busy,
    ) -> None:
        self._factor = factor
        self._somebody_waits = somebody_waits
        self._is_busy = is_busy
        self._answer = False
        self._answered_at = -_ANSWER_HOLDS_SECONDS

    async def pause(self, worked: float) -> None:
        """Call it after `worked` seconds of work."""
        if self._factor > 0 and self._is_busy() and await self._is_asked_for():
            await asyncio.sleep(min(worked * self._factor, _LONGEST_PAUSE))

    async def _is_asked_for(self) -> bool:
        if time.monotonic() - self._answered_at >= _ANSWER_HOLDS_SECONDS:
            self._answered_at = time.monotonic()
            self._answer = await self._somebody_waits()
        return self._answer
