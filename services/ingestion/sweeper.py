"""Finds documents that nobody works on and no message will wake, and gives them a new wake-up. Every replica runs one; none leads."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import structlog

from services.ingestion.store import SQL
from shared.db.pool import DATABASE_TROUBLE, Pool
from shared.leases import PRESENCE_CLASS, LeaseSettings

log = structlog.get_logger()

_PRUNED_AT_ONCE = 1000
_PRUNE_PAUSE = 0.1


class Sweeper:
    """`room` says how many wake-ups the queue has room for: when there is none, a document that waits is in the queue, not forgotten."""

    def __init__(
        self, pool: Pool, leases: LeaseSettings, room: Callable[[], Awaitable[int]], nudge: Callable[[], None]
    ) -> None:
        self._pool = pool
        self._leases = leases
        self._room = room
        self._nudge = nudge

    async def run(self) -> None:
        """Sweeps for ever."""
        while True:
            try:
                await self.sweep()
            except DATABASE_TROUBLE as error:
                log.warning("sweep.failed", cause=type(error).__name__)
            await asyncio.sleep(self._leases.sweep_every)

    async def sweep(self) -> int:
        """Ends the leases of processes that died and wakes what needs it; returns how many wake-ups were written."""
        expired = await self._pool.fetch(SQL["expire_leases_of_the_dead"], PRESENCE_CLASS, self._leases.orphaned_after)
        room = await self._room()
        if room == 0:
            return 0
        wake_after = timedelta(seconds=self._leases.wake_after)
        woken = await self._pool.fetch(SQL["wake_documents"], wake_after, room)
        if woken:
            log.info("document.woken", count=len(woken), expired=len(expired))
            self._nudge()
        return len(woken)


async def prune_cache_for_ever(pool: Pool, keep: timedelta, every: float) -> None:
    """Forgets old embeddings, some at a time; `every` is in seconds."""
    while True:
        try:
            pause = (
                _PRUNE_PAUSE if await pool.execute(SQL["prune_cache"], keep, _PRUNED_AT_ONCE) != "DELETE 0" else every
            )
        except DATABASE_TROUBLE as error:
            log.warning("cache.not_pruned", cause=type(error).__name__)
            pause = every
        await asyncio.sleep(pause)
