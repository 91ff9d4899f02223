"""Finds documents that nobody works on and no message will wake, and gives them a new wake-up. Every replica runs one; none leads."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import structlog

from services.ingestion.store import SQL
from shared.amqp import BROKER_TROUBLE, Link, NotConnected
from shared.db.pool import DATABASE_TROUBLE, Pool
from shared.leases import PRESENCE_CLASS, LeaseSettings
from shared.topology import DOCUMENTS, declare_all

log = structlog.get_logger()

_WAKE_UPS_WAITING = 100
_COUNT_SECONDS = 2.0
_PRUNED_AT_ONCE = 1000
_PRUNE_PAUSE = 0.1
_UNTOUCHED_SECONDS = 2.0  # how long a lease is left alone after it was taken or renewed


class WaitingWakeUps:
    """How many wake-ups for documents the broker holds."""

    def __init__(self, rabbitmq_url: str, service: str) -> None:
        self._link = Link(rabbitmq_url, f"{service}.sweeper", declare_all)

    async def run(self) -> None:
        """Keeps the connection for ever."""
        await self._link.run()

    async def count(self) -> int:
        """0 while the broker is away: wake-ups may be lost then, and wait in the outbox at worst."""
        try:
            queue = await self._link.channel.declare_queue(DOCUMENTS, passive=True, timeout=_COUNT_SECONDS)
        except (*BROKER_TROUBLE, NotConnected):
            return 0
        return queue.declaration_result.message_count or 0


class Sweeper:
    """`waiting` says how many wake-ups the queue holds: while there are plenty, a document that waits is in the queue, not forgotten."""

    def __init__(
        self, pool: Pool, leases: LeaseSettings, waiting: Callable[[], Awaitable[int]], nudge: Callable[[], None]
    ) -> None:
        self._pool = pool
        self._leases = leases
        self._waiting = waiting
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
        untouched = timedelta(seconds=self._leases.lease - _UNTOUCHED_SECONDS)
        expired = await self._pool.fetch(SQL["expire_leases_of_the_dead"], PRESENCE_CLASS, untouched)
        room = _WAKE_UPS_WAITING - await self._waiting()
        if room <= 0:
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
