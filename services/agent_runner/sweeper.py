"""The sweeper: finds runs that nobody is responsible for. Every replica has one; they need no leader."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import structlog

from services.agent_runner.store import RunStore
from shared.db.pool import DATABASE_TROUBLE

log = structlog.get_logger()


class Sweeper:
    """Sweeps every `interval` seconds, give or take a fifth, so that replicas don't march in step.

    `room` says how many wake-ups the queue has room for: when there is none, a run that waits is in the queue, not forgotten.
    """

    def __init__(
        self, store: RunStore, room: Callable[[], Awaitable[int]], nudge: Callable[[], None], interval: float
    ) -> None:
        self._store = store
        self._room = room
        self._nudge = nudge
        self._interval = interval

    async def run(self) -> None:
        """Sweeps for ever."""
        while True:
            await asyncio.sleep(self._interval * random.uniform(0.8, 1.2))  # noqa: S311 - not for secrets
            try:
                woken = await self._store.sweep(await self._room())
            except DATABASE_TROUBLE as error:
                log.warning("sweep.failed", cause=type(error).__name__)
                continue
            if woken:
                log.info("sweep.woke", runs=woken)
                self._nudge()
