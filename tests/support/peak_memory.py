"""The peak memory of this process's descendants while something runs."""

import asyncio
from types import TracebackType
from typing import Self

import psutil

_SAMPLE_EVERY = 0.02
_MEGABYTE = 1e6


class PeakMemory:
    """`megabytes` is the most that one descendant held at once (resident, sampled every 20 ms)."""

    def __init__(self) -> None:
        self.megabytes = 0.0
        self._sampling: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._sampling = asyncio.create_task(self._sample())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sampling is not None:
            self._sampling.cancel()

    async def _sample(self) -> None:
        while True:
            for child in psutil.Process().children(recursive=True):
                try:
                    self.megabytes = max(self.megabytes, child.memory_info().rss / _MEGABYTE)
                except psutil.NoSuchProcess:
                    continue
            await asyncio.sleep(_SAMPLE_EVERY)
