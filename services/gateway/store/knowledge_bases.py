"""Knowledge bases."""

from pathlib import Path
from typing import Any
from uuid import UUID

from services.gateway.refusals import not_found
from services.gateway.store.pages import Page
from shared.db.pool import AnyConnection
from shared.db.queries import load_queries
from shared.ids import new_id

SQL = load_queries(Path(__file__).with_name("knowledge_bases.sql"))

_DELETE_SECONDS = 300.0  # a large base takes its chunks and their index entries along


async def create_knowledge_base(connection: AnyConnection, tenant_id: UUID, columns: dict[str, Any]) -> str:
    body: str = await connection.fetchval(
        SQL["create_knowledge_base"],
        tenant_id,
        new_id(),
        columns["name"],
        columns["description"],
        columns["embedding_model"],
        columns["settings"],
    )
    return body


async def read_knowledge_base(connection: AnyConnection, tenant_id: UUID, knowledge_base_id: UUID) -> str:
    body: str | None = await connection.fetchval(SQL["read_knowledge_base"], tenant_id, knowledge_base_id)
    if body is None:
        raise not_found("knowledge base")
    return body


async def list_knowledge_bases(connection: AnyConnection, tenant_id: UUID, below: UUID, limit: int) -> Page[UUID]:
    return Page.of(await connection.fetch(SQL["list_knowledge_bases"], tenant_id, below, limit + 1), "id", limit)


async def update_knowledge_base(
    connection: AnyConnection, tenant_id: UUID, knowledge_base_id: UUID, columns: dict[str, Any]
) -> str:
    """Changes the given columns, except `embedding_model`: see store.embeddings."""
    body: str | None = await connection.fetchval(SQL["update_knowledge_base"], tenant_id, knowledge_base_id, columns)
    if body is None:
        raise not_found("knowledge base")
    return body


async def delete_knowledge_base(connection: AnyConnection, tenant_id: UUID, knowledge_base_id: UUID) -> None:
    await connection.execute(SQL["lock_documents_of_knowledge_base"], tenant_id, knowledge_base_id)
    deleted = await connection.fetchval(
        SQL["delete_knowledge_base"], tenant_id, knowledge_base_id, timeout=_DELETE_SECONDS
    )
    if deleted is None:
        raise not_found("knowledge base")


async def require_knowledge_base(connection: AnyConnection, tenant_id: UUID, knowledge_base_id: UUID) -> None:
    if not await connection.fetchval(SQL["knowledge_base_exists"], tenant_id, knowledge_base_id):
        raise not_found("knowledge base")
