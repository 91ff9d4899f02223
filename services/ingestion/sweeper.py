"""Finds documents whose worker is gone, and forgets old embeddings. Every replica runs one; none leads."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import UUID

import structlog

from services.ingestion.generation_store import GenerationStore
from services.ingestion.store import SQL, DatabaseAway, DocumentStore
from shared.db.pool import DATABASE_TROUBLE, Pool

log = structlog.get_logger()

_PRUNED_AT_ONCE = 1000
_PRUNE_PAUSE = 0.1


class Sweeper:
    """Sweeps every `interval` seconds; `nudge` says that there is work now, `held` which documents this process works on."""

    def __init__(
        self, store: DocumentStore, held: Callable[[], Sequence[UUID]], nudge: Callable[[], None], interval: float
    ) -> None:
        self._store = store
        self._held = held
        self._nudge = nudge
        self._interval = interval

    async def run(self) -> None:
        """Sweeps for ever."""
        while True:
            try:
                abandoned = await self._store.requeue_abandoned(self._held())
                if abandoned:
                    log.warning("document.abandoned", documents=[str(document_id) for document_id in abandoned])
                    self._nudge()
            except DATABASE_TROUBLE as error:
                log.warning("sweep.failed", cause=type(error).__name__)
            await asyncio.sleep(self._interval)


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


async def discard_generations_for_ever(store: GenerationStore, keep: timedelta, every: float) -> None:
    """Gives up former embeddings that were kept long enough; `every` is in seconds."""
    while True:
        try:
            await store.discard_outdated(keep)
        except (DatabaseAway, *DATABASE_TROUBLE) as error:
            log.warning("generations.not_discarded", cause=type(error).__name__)
        await asyncio.sleep(every)
