"""The event log of a knowledge base: the only writer of knowledge_base_event.

Every change of a document's state, and its deletion, is an event in the same transaction as the change.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from uuid import UUID

from shared.contracts.hints import EventFrame
from shared.db.pool import AnyConnection
from shared.db.queries import load_queries
from shared.events import to_frames

SQL = load_queries(Path(__file__).with_name("documents.sql"))

DocumentEvent = Literal["document.state", "document.deleted"]


async def append_document_event(
    connection: AnyConnection,
    tenant_id: UUID,
    knowledge_base_id: UUID,
    document_id: UUID,
    event: DocumentEvent = "document.state",
) -> list[EventFrame]:
    """Appends the document as it is now to its knowledge base's log; call it in the transaction that changed (or will delete) the document.

    Returns the event as a frame for the hint, or nothing when there is no such document.
    """
    return await append_document_events(connection, tenant_id, knowledge_base_id, [document_id], event)


async def append_document_events(
    connection: AnyConnection,
    tenant_id: UUID,
    knowledge_base_id: UUID,
    document_ids: Sequence[UUID],
    event: DocumentEvent = "document.state",
) -> list[EventFrame]:
    """The same for several documents of one knowledge base, in their order. Row locks are taken in the order document, knowledge base."""
    if not document_ids:
        return []
    rows = await connection.fetch(SQL["append_document_events"], tenant_id, knowledge_base_id, document_ids, event)
    return to_frames(rows, "knowledge_base_id", knowledge_base_id)
