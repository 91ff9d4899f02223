"""Jobs: a bounded number of supervised tasks beside the consumer.

A wake-up's handler claims the work and returns, so that the message is acknowledged at once; the work itself runs here, where no broker
hiccup can cancel it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Literal

import structlog

log = structlog.get_logger()


class Draining(Exception):
    """This process is stopping and takes no more work."""


class JobSlots:
    """`size` slots. `take()` waits for a free one; `start()` fills it with a job; `stop_taking()` and `drain()` end them all."""

    def __init__(self, size: int) -> None:
        self._free = asyncio.Semaphore(size)
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = asyncio.Event()

    async def take(self, wait: float) -> None:
        """Reserves a slot for `start`.

        Raises TimeoutError when none is free within `wait` seconds, Draining when the process is stopping.
        """
        if self._draining.is_set():
            raise Draining
        free = asyncio.ensure_future(self._free.acquire())
        stopping = asyncio.ensure_future(self._draining.wait())
        try:
            await asyncio.wait((free, stopping), timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._let_go(free)  # it may have been got at this very moment
            raise
        finally:
            stopping.cancel()
        if free.done() and not self._draining.is_set():
            return
        self._let_go(free)
        raise Draining if self._draining.is_set() else TimeoutError

    def _let_go(self, free: "asyncio.Future[Literal[True]]") -> None:
        if free.done() and not free.cancelled():
            self._free.release()
        free.cancel()

    def stop_taking(self) -> None:
        """Refuses everything new from now on, also to those who wait for a slot."""
        self._draining.set()

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
        self.stop_taking()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=10)
