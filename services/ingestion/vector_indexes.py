"""Keeps the approximate indexes of large knowledge bases: decides by counts which are wanted, builds, extends and drops them.

Every replica runs one; locks in the database let one of them do a thing. Searches are right whatever is left undone here: they read exactly
what no index holds. See docs/decisions/0019-vector-search.md and migration 0013.
"""

import asyncio
import time
from datetime import timedelta
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

import asyncpg
import structlog

from services.ingestion.settings import VectorIndexSettings
from shared.db.pool import DATABASE_TROUBLE, Pool
from shared.db.queries import load_queries

log = structlog.get_logger()

SQL = load_queries(Path(__file__).with_name("vector_indexes.sql"))

_CHANGES_AT_ONCE: Final = 1000
_LONG_SECONDS: Final = 60.0  # a statement that waits for nobody, but has much to read
_POSTPONED: Final = timedelta(minutes=10)


class Generation(NamedTuple):
    """One embedding of a knowledge base."""

    knowledge_base_id: UUID
    number: int


class VectorIndexes:
    """Sweeps every `every` seconds, and counts every `count_every` seconds."""

    def __init__(self, pool: Pool, settings: VectorIndexSettings) -> None:
        self._pool = pool
        self._settings = settings
        self._counted_at = float("-inf")

    async def run(self) -> None:
        """Sweeps for ever."""
        while True:
            try:
                await self.sweep()
            except DATABASE_TROUBLE as error:
                # A search that holds on to a table that is to be dropped, say: nothing that the next sweep doesn't do.
                log.warning("vector_indexes.not_swept", cause=type(error).__name__)
            except Exception:
                # A missing right, a mistake of ours: somebody has to mend it, but searches are right without indexes.
                log.exception("vector_indexes.failed")
            await asyncio.sleep(self._settings.every)

    async def sweep(self) -> None:
        """Registers what has grown, extends, builds what is due, forgets what has shrunk, drops what nobody needs."""
        for generation in await self._fetch("register_vector_indexes", self._settings.min_vectors, _CHANGES_AT_ONCE):
            log.info("vector_index.registered", **_named(generation))
        await self._pool.execute(SQL["set_horizons"])
        await self._pool.execute(SQL["renew_outgrown_indexes"])
        for generation in await self._fetch("behind_vector_indexes"):
            await self._extend(generation)
        if time.monotonic() - self._counted_at >= self._settings.count_every:
            await self._count()
            self._counted_at = time.monotonic()
        for generation in await self._fetch("due_vector_indexes"):
            await self._build(generation)
        await self._drop()

    async def _build(self, generation: Generation) -> None:
        began = time.monotonic()
        arguments = (*generation, self._settings.memory_mb)
        try:
            rows = await self._pool.fetchval(
                SQL["build_vector_index"], *arguments, timeout=self._settings.build_seconds
            )
        except (asyncpg.PostgresConnectionError, asyncpg.OperatorInterventionError, asyncpg.SyntaxOrAccessError):
            raise  # the server went away, somebody ended it, or it may not be done: nothing is left of it, and it is due still
        except (TimeoutError, asyncpg.PostgresError) as error:
            # Vectors of two dimensions, a disk that is full: searches go on exactly, whoever reads the log mends it.
            log.warning("vector_index.failed", cause=type(error).__name__, **_named(generation))
            await self._pool.execute(SQL["postpone_vector_index"], *generation, _POSTPONED, type(error).__name__)
            return
        if rows is not None:
            seconds = round(time.monotonic() - began, 1)
            log.info("vector_index.built", rows=rows, seconds=seconds, **_named(generation))
            await self._count_one(generation)

    async def _extend(self, generation: Generation) -> None:
        total, batch = 0, self._settings.batch
        while moved := await self._pool.fetchval(SQL["extend_vector_index"], *generation, batch):
            total += moved
        if total:
            log.info("vector_index.extended", rows=total, **_named(generation))

    async def _count(self) -> None:
        for generation in await self._fetch("indexed_generations"):
            await self._count_one(generation)
        for generation in await self._fetch("forget_vector_indexes", self._settings.min_vectors // 2):
            log.info("vector_index.forgotten", **_named(generation))
        await self._pool.execute(SQL["forget_pending_vectors"])

    async def _count_one(self, generation: Generation) -> None:
        for statement in ("count_vectors", "count_common_terms"):
            await self._pool.execute(SQL[statement], *generation, timeout=_LONG_SECONDS)

    async def _drop(self) -> None:
        if dropped := await self._pool.fetchval(SQL["drop_unused_vector_relations"]):
            log.info("vector_index.dropped", relations=dropped)

    async def _fetch(self, name: str, *arguments: int) -> list[Generation]:
        return [Generation(*row.values()) for row in await self._pool.fetch(SQL[name], *arguments)]


def _named(generation: Generation) -> dict[str, str | int]:
    return {"knowledge_base_id": str(generation.knowledge_base_id), "generation": generation.number}
