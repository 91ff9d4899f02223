"""Jobs: a bounded number of supervised tasks beside the consumer.

A wake-up's handler claims the work and returns, so that the message is acknowledged at once; the work itself runs here, where no broker
hiccup can cancel it.
"""

import asyncio
from collections.abc import Callable, Coroutine

import structlog

log = structlog.get_logger()


class Draining(Exception):
    """This process is stopping and takes no more work."""


class JobSlots:
    """`size` slots. `take()` waits for a free one; `start()` fills it with a job; `drain()` ends them all."""

    def __init__(self, size: int) -> None:
        self._free = asyncio.Semaphore(size)
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = asyncio.Event()

    async def take(self, timeout: float) -> None:
        """Reserves a slot. Raises TimeoutError when none is free in time, Draining when the process is stopping."""
        if self._draining.is_set():
            raise Draining
        async with asyncio.timeout(timeout):
            await self._free.acquire()
        if self._draining.is_set():
            self._free.release()
            raise Draining

    def give_back(self) -> None:
        """Returns a reserved slot that no job was started in."""
        self._free.release()

    def start(self, job: Callable[[], Coroutine[None, None, None]]) -> None:
        """Runs a job in a slot reserved with `take()`."""
        task = asyncio.ensure_future(job())
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._free.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("job.crashed", exc_info=error)

    async def drain(self, grace: float) -> None:
        """Takes nothing new, lets jobs go on for `grace` seconds, then cancels those left and waits for them to hand back."""
        self._draining.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=10)
