"""Documents that are read again from their stored bytes, with the settings that their knowledge base has now.

Such a reading is a version of its own, as new bytes are: the chunks of the one before serve until it is ready, whoever works on that one
is fenced out, and a version never means two texts. What is the same text as before is not embedded again. A document that waits to be
read is left as it is, because settings are read when work on it begins.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from services.gateway.store.documents import DocumentChange, Place, announce_queued, lock_document
from shared.contracts.hints import EventFrame
from shared.db.pool import AnyConnection
from shared.db.queries import load_queries

SQL = load_queries(Path(__file__).with_name("reprocessing.sql"))


@dataclass(frozen=True, slots=True)
class Reprocessed:
    """The events of the documents that were queued, and the last one that was looked at; None when none are left."""

    frames: list[EventFrame]
    last: UUID | None


async def reprocess_documents(
    connection: AnyConnection, place: Place, after: UUID, limit: int, only: Sequence[UUID] | None
) -> Reprocessed:
    """Queues what doesn't wait already of the next `limit` documents above an id: of all, or of `only` some as far as they are there."""
    looked_at = await next_documents(connection, place, after, limit, only)
    frames = await _reprocess(connection, place, looked_at)
    return Reprocessed(frames, looked_at[-1] if len(looked_at) == limit else None)


async def next_documents(
    connection: AnyConnection, place: Place, after: UUID, limit: int, only: Sequence[UUID] | None
) -> list[UUID]:
    """Ids above another one, in order."""
    if only is not None:
        return sorted({document_id for document_id in only if document_id > after})[:limit]
    rows = await connection.fetch(SQL["find_documents"], place.tenant_id, place.knowledge_base_id, after, limit)
    return [row["id"] for row in rows]


async def find_missing(connection: AnyConnection, place: Place, ids: Sequence[UUID]) -> list[UUID]:
    """Those that are no documents of the knowledge base."""
    rows = await connection.fetch(SQL["find_missing"], place.tenant_id, place.knowledge_base_id, ids)
    return [row["id"] for row in rows]


async def reprocess_document(
    connection: AnyConnection, tenant_id: UUID, document_id: UUID, request_id: str | None
) -> DocumentChange:
    """Queues a document to be read again, unless it waits already. Raises Refusal when there is none."""
    row = await lock_document(connection, tenant_id, document_id)
    place = Place(tenant_id, row["knowledge_base_id"], request_id)
    return DocumentChange(
        document_id, place.knowledge_base_id, tuple(await _reprocess(connection, place, [document_id]))
    )


async def _reprocess(connection: AnyConnection, place: Place, document_ids: Sequence[UUID]) -> list[EventFrame]:
    rows = await connection.fetch(SQL["lock_documents"], place.tenant_id, place.knowledge_base_id, document_ids)
    queued = [row["id"] for row in rows if row["state"] != "queued"]
    if not queued:
        return []
    await connection.execute(SQL["reprocess_documents"], place.tenant_id, queued, place.request_id)
    return await announce_queued(connection, place, queued)
