"""The rows of generations and their vectors. Every change is fenced by the lease, as a document's is, and commits with its event."""

import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import structlog

from services.ingestion.chunks import text_of
from services.ingestion.pipeline import TextEmbedder
from services.ingestion.reembedding import ClaimedGeneration, IndexState, MissingVector, Shelf
from services.ingestion.store import database_errors
from shared.contracts.hints import EventFrame
from shared.db.pool import AnyConnection, Pool
from shared.db.queries import load_queries
from shared.errors import CodedError, ErrorInfo, LeaseLost
from shared.failpoints import failpoint
from shared.generations import append_embedding_event, is_complete, lock_generations, serve_generation
from shared.hints import HintSender, stream_advanced
from shared.leases import PRESENCE_CLASS, LeaseSettings

log = structlog.get_logger()

SQL = load_queries(Path(__file__).with_name("generations.sql"))

_CHUNKS_ON_A_SHELF = 1000
_DOCUMENTS_ON_A_SHELF = 1000
_DELETED_AT_ONCE = 2000
_PENDING_AT_MOST = 1000  # vectors that a search reads beside an index, see migration 0013
_LOST = "the generation belongs to somebody else or is not wanted any more"
_LONG_SECONDS = 300.0  # one statement may take longer than others


class GenerationStore:
    """Claims generations and writes their vectors, their progress and their end; sends a hint after each commit.

    A generation of more than `indexed_from` vectors is to have an index.
    """

    def __init__(self, pool: Pool, owner: UUID, leases: LeaseSettings, hints: HintSender, indexed_from: int) -> None:
        self._pool = pool
        self._owner = owner
        self._leases = leases
        self._hints = hints
        self._indexed_from = indexed_from

    async def claim(self, limit: int, without: Sequence[UUID], held: Sequence[UUID]) -> list[ClaimedGeneration]:
        """Takes up to `limit` generations for a lease, none of the tenants `without`; `held` are those that this process works on."""
        rows = await self._pool.fetch(
            SQL["claim_generations"],
            self._owner,
            self._leases.lease_interval,
            limit,
            without,
            PRESENCE_CLASS,
            self._leases.orphaned_after,
            held,
        )
        claimed = [ClaimedGeneration(**dict(row)) for row in rows]
        for job in claimed:
            if self._is_exhausted(job):
                await self._give_up(job)
        return [job for job in claimed if not self._is_exhausted(job)]

    async def renew(self, ids: list[UUID]) -> Iterable[UUID]:
        """Extends this owner's leases; returns the ids that are still its own."""
        rows = await self._pool.fetch(SQL["renew_generation_leases"], ids, self._owner, self._leases.lease_interval)
        return [row["id"] for row in rows]

    async def count_chunks(self, job: ClaimedGeneration) -> int:
        async with database_errors():
            count: int = await self._pool.fetchval(SQL["count_chunks"], job.tenant_id, job.knowledge_base_id)
        return count

    async def next_shelf(self, job: ClaimedGeneration, after: UUID) -> Shelf:
        """The next documents above an id, about a thousand chunks of them; none at the end."""
        place = (job.tenant_id, job.knowledge_base_id)
        async with database_errors(), self._pool.acquire() as connection:
            rows = await connection.fetch(SQL["next_documents"], *place, after, _DOCUMENTS_ON_A_SHELF)
            documents = _first_chunks(rows)
            ids = [row["id"] for row in documents]
            missing = await connection.fetch(
                SQL["find_missing_vectors"], job.tenant_id, ids, job.serving, job.generation, timeout=_LONG_SECONDS
            )
        return Shelf(ids, sum(row["chunk_count"] for row in documents), [_to_missing(row) for row in missing])

    async def confirm(self, job: ClaimedGeneration) -> None:
        """Raises LeaseLost when the generation isn't this worker's any more."""
        async with database_errors():
            if not await self._pool.fetchval(SQL["generation_is_held"], job.id, job.epoch):
                raise LeaseLost(_LOST)

    async def advance(self, job: ClaimedGeneration, done: int, total: int, *, fresh: bool) -> None:
        """Commits the progress. `fresh`: this attempt has embedded something, so that it was not in vain."""
        async with self._change(job) as connection:
            await _fenced(connection, "advance_generation", job, done, total, fresh)

    async def add_vectors(self, job: ClaimedGeneration, shelf: Shelf, vectors: TextEmbedder) -> int:
        """Inserts what was missing from the cache; how many that were. Documents that are being changed are left for the next round."""
        if not shelf.missing:
            return 0
        wanted = [(missing.chunk_id, missing.field, vectors.key(missing.text)) for missing in shelf.missing]
        chunk_ids, fields, keys = map(list, zip(*wanted, strict=True))
        async with self._transaction() as connection:
            locked = await connection.fetch(SQL["lock_free_documents"], job.tenant_id, shelf.document_ids)
            await _fenced(connection, "hold_generation", job)
            status = await connection.execute(
                SQL["add_missing_vectors"],
                job.tenant_id,
                job.knowledge_base_id,
                job.generation,
                [row["id"] for row in locked],
                chunk_ids,
                fields,
                vectors.cache_name,
                keys,
                timeout=_LONG_SECONDS,
            )
        return int(status.split()[-1])

    async def index_state(self, job: ClaimedGeneration) -> IndexState:
        """How far the index of a generation is; the first time, a large one is registered for one, which the sweeps then build."""
        generation = (job.knowledge_base_id, job.generation)
        async with database_errors():
            await self._pool.execute(SQL["register_generation"], job.tenant_id, *generation, self._indexed_from)
            state: IndexState = await self._pool.fetchval(SQL["index_state"], *generation, _PENDING_AT_MOST)
        return state

    async def cut_over(self, job: ClaimedGeneration) -> bool:
        """Makes the generation serve, unless something is missing in it; whether it does."""
        async with database_errors(), self._pool.acquire() as connection:
            # One by one without the lock, and below by their number: whoever adds chunks waits there.
            arguments = (job.knowledge_base_id, job.serving, job.generation)
            if not await connection.fetchval(SQL["lacks_nothing"], *arguments, timeout=_LONG_SECONDS):
                return False
        began = time.monotonic()
        async with self._transaction() as connection:
            serving = await lock_generations(connection, job.tenant_id, job.knowledge_base_id)
            await _fenced(connection, "hold_generation", job)
            if serving is None or serving.generation != job.serving:
                raise LeaseLost(_LOST)
            if not await is_complete(connection, job.knowledge_base_id, job.serving, job.generation):
                return False
            await serve_generation(connection, job.tenant_id, job.knowledge_base_id, job.generation)
            frames = await append_embedding_event(connection, job.tenant_id, job.knowledge_base_id)
            failpoint("generation_switching")
        log.info("generation.cut_over", ms=round((time.monotonic() - began) * 1000))
        self._announce(job.knowledge_base_id, frames)
        return True

    async def delete_some(self, job: ClaimedGeneration) -> bool:
        """Removes some vectors of a generation that was given up, and at the end its row; whether there may be more."""
        arguments = (job.knowledge_base_id, job.generation, _DELETED_AT_ONCE)
        async with self._transaction() as connection:
            await _fenced(connection, "hold_generation", job)
            if await connection.execute(SQL["delete_vectors"], *arguments, timeout=_LONG_SECONDS) != "DELETE 0":
                return True
        async with self._transaction() as connection:
            await lock_generations(connection, job.tenant_id, job.knowledge_base_id)
            # Nobody can have added any that were not seen above, now that the lock is held.
            if await connection.execute(SQL["delete_vectors"], *arguments) != "DELETE 0":
                return True
            await _fenced(connection, "forget_generation", job)
        return False

    async def fail(self, job: ClaimedGeneration, error: ErrorInfo) -> None:
        """Ends the building with an error that the base's owner will read."""
        async with self._change(job) as connection:
            await _fenced(connection, "fail_generation", job, error.model_dump())
        log.warning("generation.failed", model=job.model, code=error.code, cause=error.message)

    async def delay(self, job: ClaimedGeneration, error: ErrorInfo) -> None:
        """Puts the generation back with growing pauses, or fails it after too many attempts without progress."""
        async with self._change(job) as connection:
            arguments = (self._leases.max_backoff, self._leases.max_attempts, error.model_dump())
            ended = await _fenced(connection, "delay_generation", job, *arguments)
        event = "generation.failed" if ended["state"] == "failed" else "generation.delayed"
        log.warning(event, model=job.model, code=error.code, cause=error.message)

    async def hand_back(self, job: ClaimedGeneration) -> None:
        """Puts the generation back; the attempt doesn't count."""
        async with self._transaction() as connection:
            await _fenced(connection, "hand_back_generation", job)
        log.info("generation.handed_back", model=job.model)

    async def discard_outdated(self, keep: timedelta) -> None:
        """Gives up generations that were kept, or have failed, longer ago than `keep`."""
        for base in await self._pool.fetch(SQL["find_outdated_generations"], keep):
            place = (base["tenant_id"], base["knowledge_base_id"])
            async with self._transaction() as connection:
                await lock_generations(connection, *place)
                await connection.fetch(SQL["discard_outdated_generations"], *place, keep)
                frames = await append_embedding_event(connection, *place)
            self._announce(base["knowledge_base_id"], frames)

    def _is_exhausted(self, job: ClaimedGeneration) -> bool:
        return job.state == "building" and job.attempts > self._leases.max_attempts

    async def _give_up(self, job: ClaimedGeneration) -> None:
        message = f"the worker died {self._leases.max_attempts} times in a row while it embedded this knowledge base"
        try:
            await self.fail(job, ErrorInfo(code="attempts_exhausted", message=message))
        except CodedError as error:
            log.warning("generation.abandoned", code=error.code)  # the lease runs out, and somebody claims it

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[AnyConnection]:
        async with database_errors(), self._pool.acquire() as connection, connection.transaction():
            yield connection

    @asynccontextmanager
    async def _change(self, job: ClaimedGeneration) -> AsyncIterator[AnyConnection]:
        """A transaction around a change that clients see, with its event at the end and the hint after the commit."""
        async with self._transaction() as connection:
            await connection.execute(SQL["lock_base"], job.tenant_id, job.knowledge_base_id)  # before its generation
            yield connection
            frames = await append_embedding_event(connection, job.tenant_id, job.knowledge_base_id)
        self._announce(job.knowledge_base_id, frames)

    def _announce(self, knowledge_base_id: UUID, frames: Sequence[EventFrame]) -> None:
        if frames:
            self._hints.send(stream_advanced(knowledge_base_id, frames))


async def _fenced(connection: AnyConnection, name: str, job: ClaimedGeneration, *arguments: Any) -> asyncpg.Record:
    """Runs a statement that begins with the fence. Raises LeaseLost when it touches no row."""
    row = await connection.fetchrow(SQL[name], job.id, job.epoch, *arguments)
    if row is None:
        raise LeaseLost(_LOST)
    return row


def _first_chunks(documents: Sequence[asyncpg.Record]) -> list[asyncpg.Record]:
    """The first of these documents, until their chunks are enough."""
    before = accumulate((row["chunk_count"] for row in documents), initial=0)
    return [row for row, chunks in zip(documents, before, strict=False) if chunks < _CHUNKS_ON_A_SHELF]


def _to_missing(row: asyncpg.Record) -> MissingVector:
    return MissingVector(
        row["chunk_id"], row["field"], text_of(row["field"], row["title"], row["heading_path"], row["content"])
    )
