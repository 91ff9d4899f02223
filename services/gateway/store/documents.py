"""Documents: every change is one transaction with its event and, where there is work to do, its wake-up."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import orjson

from services.gateway.refusals import Refusal, not_found
from services.gateway.schemas.labels import Labels
from services.gateway.store.pages import Page
from shared.contracts.commands import IngestDocument
from shared.contracts.hints import EventFrame
from shared.db.pool import AnyConnection
from shared.db.queries import load_queries
from shared.documents import append_document_event, append_document_events
from shared.ids import new_id
from shared.outbox import add_to_outbox
from shared.topology import kind_of

SQL = load_queries(Path(__file__).with_name("documents.sql"))

QUEUED_AT_ONCE = 1000  # by one transaction: others wait for its locks
_ATTEMPTS = 8  # to store files; another one is needed only when others store the same between two statements
_RETRY_SECONDS = 1


class _StoredMeanwhile(Exception):
    """Another transaction stored the same bytes after this one had looked for them.

    This one gives all back and looks again: it holds the knowledge base, and documents are locked before that.
    """


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that was received and checked. `parts` yields its bytes, in parts of at most 1 MiB, each time it is called."""

    filename: str
    media_type: str
    size: int
    sha256: bytes
    parts: Callable[[], AsyncIterator[bytes]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a document is, on whose behalf."""

    tenant_id: UUID
    knowledge_base_id: UUID
    request_id: str | None


@dataclass(frozen=True, slots=True)
class DocumentChange:
    """What became of a document: `accepted` when it was queued, with its events. Otherwise nothing was changed."""

    document_id: UUID
    knowledge_base_id: UUID | None = None
    frames: tuple[EventFrame, ...] = ()

    @property
    def accepted(self) -> bool:
        return bool(self.frames)


async def add_documents(
    connection: AnyConnection, place: Place, uploads: Sequence[Upload], labels: Labels
) -> list[DocumentChange]:
    """Stores files with labels, or finds the documents with the same bytes; those that had failed are queued again.

    In the order of the files. A document that is there keeps its labels and its name, and stays until the commit. Raises Refusal when the
    tenant has no such knowledge base.
    """
    for _ in range(_ATTEMPTS):
        with suppress(_StoredMeanwhile):
            async with connection.transaction():
                return await _announced(connection, place, await _add_or_find(connection, place, uploads, labels))
    raise Refusal("unavailable", "Others store and delete the same files just now.", retry_after=_RETRY_SECONDS)


async def _add_or_find(
    connection: AnyConnection, place: Place, uploads: Sequence[Upload], labels: Labels
) -> list[tuple[UUID, bool]]:
    """The documents with these bytes, and whether each was queued by this. Raises _StoredMeanwhile and Refusal."""
    hashes = [upload.sha256 for upload in uploads]
    rows = await connection.fetch(
        SQL["hold_documents_by_content"], place.tenant_id, place.knowledge_base_id, sorted(set(hashes))
    )
    if await connection.fetchval(SQL["hold_knowledge_base"], place.tenant_id, place.knowledge_base_id) is None:
        raise not_found("knowledge base")
    document_of: dict[bytes, UUID] = {row["sha256"]: row["id"] for row in rows}
    queued: dict[int, bool] = {}
    # Stored in the order of their hashes, and the events, which lock the knowledge base, after all of them: two requests with the same
    # files can't wait for each other.
    for position in sorted(range(len(uploads)), key=hashes.__getitem__):
        document_id = document_of.get(hashes[position])
        if document_id is None:
            document_of[hashes[position]] = await _add_document(connection, place, uploads[position], labels)
        queued[position] = document_id is None or await _requeue(connection, place, document_id)
    return [(document_of[sha256], queued[position]) for position, sha256 in enumerate(hashes)]


async def _add_document(connection: AnyConnection, place: Place, upload: Upload, labels: Labels) -> UUID:
    document_id = new_id()
    added = await connection.fetchval(
        SQL["add_document"],
        place.tenant_id,
        document_id,
        place.knowledge_base_id,
        upload.filename,
        upload.media_type,
        upload.size,
        upload.sha256,
        place.request_id,
        labels.tags,
        labels.date,
    )
    if added is None:
        raise _StoredMeanwhile
    await _store_bytes(connection, place.tenant_id, document_id, 1, upload)
    return document_id


async def _requeue(connection: AnyConnection, place: Place, document_id: UUID) -> bool:
    """Queues a document again if it has failed."""
    failed = await connection.fetchval(SQL["requeue_failed_document"], place.tenant_id, document_id, place.request_id)
    return failed is not None


async def _announced(
    connection: AnyConnection, place: Place, documents: Sequence[tuple[UUID, bool]]
) -> list[DocumentChange]:
    """Announces those that were queued."""
    queued = list(dict.fromkeys(document_id for document_id, is_queued in documents if is_queued))
    frames = await announce_queued(connection, place, queued)
    event_of = dict(zip(queued, frames, strict=True))
    return [
        DocumentChange(document_id, place.knowledge_base_id, (event_of[document_id],) if is_queued else ())
        for document_id, is_queued in documents
    ]


async def announce_queued(connection: AnyConnection, place: Place, queued: Sequence[UUID]) -> list[EventFrame]:
    """Appends the events of queued documents, and one wake-up for them all: workers look as often as they have room."""
    if queued:
        await _wake(connection, place, queued[0])
    return await append_document_events(connection, place.tenant_id, place.knowledge_base_id, queued)


async def lock_document(connection: AnyConnection, tenant_id: UUID, document_id: UUID) -> asyncpg.Record:
    """A document's knowledge_base_id, sha256 and version, which stay until the commit. Raises Refusal when there is none."""
    row = await connection.fetchrow(SQL["lock_document"], tenant_id, document_id)
    if row is None:
        raise not_found("document")
    return row


async def replace_content(
    connection: AnyConnection, tenant_id: UUID, document_id: UUID, upload: Upload, request_id: str | None
) -> DocumentChange:
    """The next version of a document; the same bytes again change nothing, except that a failed document is queued again."""
    row = await lock_document(connection, tenant_id, document_id)
    if row["sha256"] == upload.sha256:
        return await requeue_if_failed(connection, tenant_id, document_id, request_id)
    try:
        version = await connection.fetchval(
            SQL["replace_content"],
            tenant_id,
            document_id,
            upload.filename,
            upload.media_type,
            upload.size,
            upload.sha256,
            request_id,
        )
    except asyncpg.UniqueViolationError:
        raise Refusal("duplicate_document", "Another document of this knowledge base has the same content.") from None
    await connection.execute(SQL["delete_older_blobs"], tenant_id, document_id, version)
    await _store_bytes(connection, tenant_id, document_id, version, upload)
    return await _queued(connection, Place(tenant_id, row["knowledge_base_id"], request_id), document_id)


async def requeue_if_failed(
    connection: AnyConnection, tenant_id: UUID, document_id: UUID, request_id: str | None
) -> DocumentChange:
    """Queues a failed document again; does nothing to any other."""
    knowledge_base_id = await connection.fetchval(SQL["requeue_failed_document"], tenant_id, document_id, request_id)
    if knowledge_base_id is None:
        return DocumentChange(document_id)
    return await _queued(connection, Place(tenant_id, knowledge_base_id, request_id), document_id)


async def requeue_failed(connection: AnyConnection, place: Place, limit: int) -> list[EventFrame]:
    """Queues the failed documents of a knowledge base again, up to `limit`; their events."""
    rows = await connection.fetch(
        SQL["requeue_failed_documents"], place.tenant_id, place.knowledge_base_id, limit, place.request_id
    )
    return await announce_queued(connection, place, sorted(row["id"] for row in rows))


async def has_failed(connection: AnyConnection, place: Place) -> bool:
    failed: bool = await connection.fetchval(SQL["has_failed_documents"], place.tenant_id, place.knowledge_base_id)
    return failed


async def update_document(
    connection: AnyConnection, tenant_id: UUID, document_id: UUID, columns: dict[str, Any]
) -> tuple[UUID, list[EventFrame]]:
    """Changes the given columns; the id of the document's knowledge base, and the event."""
    knowledge_base_id: UUID | None = await connection.fetchval(SQL["update_document"], tenant_id, document_id, columns)
    if knowledge_base_id is None:
        raise not_found("document")
    return knowledge_base_id, await append_document_event(connection, tenant_id, knowledge_base_id, document_id)


async def delete_document(
    connection: AnyConnection, tenant_id: UUID, document_id: UUID
) -> tuple[UUID, list[EventFrame]]:
    """Removes a document and everything of it; the id of its knowledge base, and the event."""
    row = await lock_document(connection, tenant_id, document_id)
    knowledge_base_id: UUID = row["knowledge_base_id"]
    frames = await append_document_event(connection, tenant_id, knowledge_base_id, document_id, "document.deleted")
    await connection.execute(SQL["delete_document"], tenant_id, document_id)
    return knowledge_base_id, frames


async def read_document(connection: AnyConnection, tenant_id: UUID, document_id: UUID) -> str:
    body: str | None = await connection.fetchval(SQL["read_document"], tenant_id, document_id)
    if body is None:
        raise not_found("document")
    return body


async def filename_of(connection: AnyConnection, tenant_id: UUID, document_id: UUID) -> str:
    name: str = orjson.loads(await read_document(connection, tenant_id, document_id))["filename"]
    return name


async def list_documents(
    connection: AnyConnection, place: Place, below: UUID, limit: int, state: str | None, tags: Sequence[str]
) -> Page[UUID]:
    """Documents in a state, or in any, with all of the tags. Each of these lists is read from an index of its own."""
    arguments = (place.tenant_id, place.knowledge_base_id, below, limit + 1)
    if tags:
        rows = await connection.fetch(SQL["list_tagged_documents"], *arguments, state, tags)
    elif state is not None:
        rows = await connection.fetch(SQL["list_documents_in_state"], *arguments, state)
    else:
        rows = await connection.fetch(SQL["list_documents"], *arguments)
    return Page.of(rows, "id", limit)


async def list_chunks(
    connection: AnyConnection, tenant_id: UUID, document_id: UUID, above: int, limit: int
) -> Page[int]:
    await read_document(connection, tenant_id, document_id)
    rows = await connection.fetch(SQL["list_chunks"], tenant_id, document_id, min(above, 2**31 - 1), limit + 1)
    return Page.of(rows, "ordinal", limit)


async def _queued(connection: AnyConnection, place: Place, document_id: UUID) -> DocumentChange:
    [change] = await _announced(connection, place, [(document_id, True)])
    return change


async def _wake(connection: AnyConnection, place: Place, document_id: UUID) -> None:
    message = IngestDocument(
        tenant_id=place.tenant_id,
        knowledge_base_id=place.knowledge_base_id,
        document_id=document_id,
        request_id=place.request_id,
    )
    await add_to_outbox(connection, kind_of(message), document_id, message)


async def _store_bytes(
    connection: AnyConnection, tenant_id: UUID, document_id: UUID, version: int, upload: Upload
) -> None:
    part = 0
    async for data in upload.parts():
        await connection.execute(SQL["add_blob_part"], tenant_id, document_id, version, part, data)
        part += 1
