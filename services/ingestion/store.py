"""The rows of documents and chunks. Every change of a document is fenced by its lease and commits together with its event."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import orjson
import structlog

from services.ingestion.chunks import Chunk
from services.ingestion.pipeline import ClaimedDocument, Content, Progress, TextEmbedder
from services.ingestion.rows import chunk_row, piece_row
from services.ingestion.sections import Note
from shared.contracts.hints import EventFrame
from shared.db.pool import DATABASE_TROUBLE, AnyConnection, Pool
from shared.db.queries import load_queries
from shared.documents import append_document_event, append_document_events
from shared.errors import CodedError, ErrorInfo, LeaseLost
from shared.failpoints import failpoint
from shared.hints import HintSender, stream_advanced
from shared.ids import new_id
from shared.leases import PRESENCE_CLASS, LeaseSettings

log = structlog.get_logger()

SQL = load_queries(Path(__file__).with_name("queries.sql"))

_CHUNKS_PER_STATEMENT = 1000
_SWAP_SECONDS = 300.0  # one statement of the swap may take longer than others
_MAX_ERROR_CHARS = 1000
_MAX_WARNINGS = 100


class DatabaseAway(CodedError):
    """The database can't be reached, or is too busy."""

    code = "database_unavailable"
    retryable = True


class EmbeddingsMissing(CodedError):
    """The cache was pruned between embedding and swap: the next attempt embeds what is missing."""

    code = "embeddings_missing"
    retryable = True


class DocumentStore:
    """Claims documents and writes their progress, their chunks and their end; sends a hint after each commit."""

    def __init__(self, pool: Pool, owner: UUID, leases: LeaseSettings, hints: HintSender) -> None:
        self._pool = pool
        self._owner = owner
        self._leases = leases
        self._hints = hints

    async def claim(self, limit: int, without: Sequence[UUID]) -> list[ClaimedDocument]:
        """Takes up to `limit` documents for a lease, none of the tenants `without`; those that have been tried too often fail here."""
        arguments = (self._owner, self._leases.lease_interval, limit, without)
        async with self._pool.acquire() as connection, connection.transaction():
            documents = [_to_claimed(row) for row in await connection.fetch(SQL["claim_documents"], *arguments)]
            frames = [await self._begin(connection, document) for document in documents]
        for document, its_frames in zip(documents, frames, strict=True):
            self._announce(document, its_frames)
        return [document for document in documents if not self._is_exhausted(document)]

    async def _begin(self, connection: AnyConnection, document: ClaimedDocument) -> list[EventFrame]:
        if self._is_exhausted(document):
            message = f"the worker died {self._leases.max_attempts} times in a row while it processed this document"
            error = ErrorInfo(code="attempts_exhausted", message=message)
            await _fenced(connection, "fail_document", document, _to_stored(error))
            log.error("document.failed", document_id=str(document.id), code="attempts_exhausted")
        return await _append_event(connection, document)

    def _is_exhausted(self, document: ClaimedDocument) -> bool:
        return document.attempts > self._leases.max_attempts

    async def requeue_abandoned(self, held: Sequence[UUID]) -> list[UUID]:
        """Queues the documents again whose worker is gone, and those of this process that are not `held`; their ids."""
        arguments = (PRESENCE_CLASS, self._leases.orphaned_after, self._leases.max_backoff, self._owner, held)
        frames: list[tuple[UUID, list[EventFrame]]] = []
        async with self._pool.acquire() as connection, connection.transaction():
            rows = await connection.fetch(SQL["requeue_abandoned_documents"], *arguments)
            # In one order, so that two sweepers never wait for each other.
            for tenant_id, knowledge_base_id in sorted({(row["tenant_id"], row["knowledge_base_id"]) for row in rows}):
                ids = [row["id"] for row in rows if row["knowledge_base_id"] == knowledge_base_id]
                events = await append_document_events(connection, tenant_id, knowledge_base_id, ids)
                frames.append((knowledge_base_id, events))
        for knowledge_base_id, events in frames:
            self._hints.send(stream_advanced(knowledge_base_id, events))
        return [row["id"] for row in rows]

    async def load(self, document: ClaimedDocument) -> bytes:
        """The whole file. Raises LeaseLost when the bytes of this version are gone."""
        place = (document.tenant_id, document.id, document.version)
        async with database_errors():
            rows = await self._pool.fetch(SQL["load_document"], *place, timeout=_SWAP_SECONDS)
        if not rows:
            raise LeaseLost("the document was deleted or has newer bytes")
        return b"".join(row["data"] for row in rows)

    async def advance(self, document: ClaimedDocument, *steps: Progress) -> None:
        """Commits states with their progress, each with its event."""
        frames: list[EventFrame] = []
        async with self._transaction() as connection:
            for step in steps:
                arguments = (step.state, step.done, step.total, step.fresh)
                await _fenced(connection, "advance_document", document, *arguments)
                frames += await _append_event(connection, document)
        self._announce(document, frames)

    async def confirm(self, document: ClaimedDocument) -> None:
        """Raises LeaseLost when the document isn't this worker's any more."""
        async with database_errors():
            if not await self._pool.fetchval(SQL["is_held"], document.id, document.epoch, document.version):
                raise LeaseLost("the document belongs to somebody else, was deleted or has newer bytes")

    async def swap_in(self, document: ClaimedDocument, content: Content) -> None:
        """Replaces the document's chunks by these; searches see all of the old ones or all of the new ones."""
        found = (len(content.chunks), _to_warnings(content.parsed.warnings), content.parsed.media_type)
        async with self._change(document) as connection:
            await _fenced(connection, "finish_document", document, *found)
            vectors = await _wanted_vectors(connection, document, content)
            await connection.execute(SQL["delete_chunks"], document.tenant_id, document.id, timeout=_SWAP_SECONDS)
            parents = await _insert_parents(connection, document, content.chunks)
            remaining = iter(content.chunks)
            while part := list(islice(remaining, _CHUNKS_PER_STATEMENT)):
                await _insert_chunks(connection, document, part, vectors, parents)
            await connection.execute(SQL["delete_old_blobs"], document.tenant_id, document.id, document.version)
            failpoint("document_swapping")

    async def fail(self, document: ClaimedDocument, error: ErrorInfo) -> None:
        """Ends the document with an error that its owner will read."""
        async with self._change(document) as connection:
            await _fenced(connection, "fail_document", document, _to_stored(error))
        log.warning("document.failed", code=error.code, cause=error.message)

    async def delay(self, document: ClaimedDocument, error: ErrorInfo) -> None:
        """Puts the document back with growing pauses, or fails it after too many attempts without progress."""
        async with self._change(document) as connection:
            arguments = (self._leases.max_backoff, self._leases.max_attempts, _to_stored(error))
            ended = await _fenced(connection, "delay_document", document, *arguments)
        event = "document.failed" if ended["state"] == "failed" else "document.delayed"
        log.warning(event, code=error.code, cause=error.message, seconds=round(ended["seconds"], 1))

    async def hand_back(self, document: ClaimedDocument) -> None:
        """Puts the document back with a wake-up; the attempt doesn't count."""
        async with self._change(document) as connection:
            await _fenced(connection, "hand_back_document", document)
        log.info("document.handed_back")

    async def renew(self, document_ids: list[UUID]) -> Iterable[UUID]:
        """Extends this owner's leases; returns the ids that are still its own."""
        rows = await self._pool.fetch(SQL["renew_leases"], document_ids, self._owner, self._leases.lease_interval)
        return [row["id"] for row in rows]

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[AnyConnection]:
        async with database_errors(), self._pool.acquire() as connection, connection.transaction():
            yield connection

    @asynccontextmanager
    async def _change(self, document: ClaimedDocument) -> AsyncIterator[AnyConnection]:
        """A transaction around a change of the document, with its event at the end and the hint after the commit."""
        async with self._transaction() as connection:
            yield connection
            frames = await _append_event(connection, document)
        self._announce(document, frames)

    def _announce(self, document: ClaimedDocument, frames: Sequence[EventFrame]) -> None:
        if frames:
            self._hints.send(stream_advanced(document.knowledge_base_id, frames))


async def somebody_waits(pool: Pool) -> bool:
    """Whether a run is being worked on. False while the database is away."""
    try:
        return bool(await pool.fetchval(SQL["somebody_waits"]))
    except DATABASE_TROUBLE:
        return False


@asynccontextmanager
async def database_errors() -> AsyncIterator[None]:
    """Turns what PostgreSQL's absence looks like into DatabaseAway."""
    try:
        yield
    except DATABASE_TROUBLE as error:
        raise DatabaseAway(f"the database is away ({type(error).__name__})") from error


async def _fenced(connection: AnyConnection, name: str, document: ClaimedDocument, *arguments: Any) -> asyncpg.Record:
    """Runs a statement that begins with the fence. Raises LeaseLost when it touches no row."""
    row = await connection.fetchrow(SQL[name], document.id, document.epoch, document.version, *arguments)
    if row is None:
        raise LeaseLost("the document belongs to somebody else, was deleted or has newer bytes")
    return row


async def _append_event(connection: AnyConnection, document: ClaimedDocument) -> list[EventFrame]:
    return await append_document_event(connection, document.tenant_id, document.knowledge_base_id, document.id)


async def _wanted_vectors(
    connection: AnyConnection, document: ClaimedDocument, content: Content
) -> dict[int, TextEmbedder]:
    """Where the vectors of the base's generations are found, which stay as they are until the commit.

    Raises EmbeddingsMissing when none were made for the one that serves: it has changed meanwhile.
    """
    await connection.execute(SQL["hold_generations"], document.knowledge_base_id)
    rows = await connection.fetch(SQL["find_generations"], document.tenant_id, document.knowledge_base_id)
    if any(row["serves"] and row["generation"] not in content.vectors for row in rows):
        raise EmbeddingsMissing("the embedding model was changed while the document was worked on")
    present = {row["generation"] for row in rows}
    return {generation: vectors for generation, vectors in content.vectors.items() if generation in present}


async def _insert_parents(
    connection: AnyConnection, document: ClaimedDocument, chunks: Sequence[Chunk]
) -> dict[int, UUID]:
    """Replaces the larger pieces that chunks are parts of. Returns their ids by ordinal."""
    place = (document.tenant_id, document.knowledge_base_id, document.id)
    await connection.execute(SQL["delete_parents"], document.tenant_id, document.id, timeout=_SWAP_SECONDS)
    parents = {parent.ordinal: parent for chunk in chunks if (parent := chunk.piece.parent)}
    ids = {ordinal: new_id() for ordinal in parents}
    remaining = iter(parents.values())
    while part := list(islice(remaining, _CHUNKS_PER_STATEMENT)):
        rows = orjson.dumps([piece_row(ids[parent.ordinal], parent) for parent in part]).decode()
        await connection.execute(SQL["insert_parents"], *place, document.version, rows, timeout=_SWAP_SECONDS)
    return ids


async def _insert_chunks(
    connection: AnyConnection,
    document: ClaimedDocument,
    chunks: Sequence[Chunk],
    generations: Mapping[int, TextEmbedder],
    parents: Mapping[int, UUID],
) -> None:
    """Inserts chunks with their vectors. `parents` are ids by ordinal. Raises EmbeddingsMissing when the cache has not all of these."""
    ids = [new_id() for _ in chunks]
    rows = orjson.dumps(
        [chunk_row(chunk_id, chunk, parents) for chunk_id, chunk in zip(ids, chunks, strict=True)]
    ).decode()
    place = (document.tenant_id, document.knowledge_base_id)
    await connection.execute(SQL["insert_chunks"], *place, document.id, document.version, rows, timeout=_SWAP_SECONDS)
    texts = [
        (chunk_id, field, text)
        for chunk_id, chunk in zip(ids, chunks, strict=True)
        for field, text in chunk.texts.items()
    ]
    for generation, vectors in generations.items():
        wanted = [(chunk_id, field, vectors.key(text)) for chunk_id, field, text in texts]
        status = await connection.execute(
            SQL["insert_embeddings"],
            *place,
            vectors.cache_name,
            *map(list, zip(*wanted, strict=True)),
            generation,
            timeout=_SWAP_SECONDS,
        )
        if status != f"INSERT 0 {len(wanted)}":
            raise EmbeddingsMissing("vectors were forgotten while the document was worked on")


def _to_warnings(notes: Sequence[Note]) -> list[dict[str, str]]:
    """The first ones, as a document shows them."""
    return [{"code": note.code, "message": note.message[:_MAX_ERROR_CHARS]} for note in notes[:_MAX_WARNINGS]]


def _to_claimed(row: asyncpg.Record) -> ClaimedDocument:
    columns = dict(row)
    others = {int(generation): model for generation, model in columns.pop("others").items()}
    return ClaimedDocument(epoch=columns.pop("lease_epoch"), other_generations=others, **columns)


def _to_stored(error: ErrorInfo) -> dict[str, str]:
    return {"code": error.code, "message": error.message[:_MAX_ERROR_CHARS]}
