"""Knowledge bases: documents that are searched together."""

from typing import Any
from uuid import UUID

from fastapi import APIRouter, Response

from services.gateway.answers import JsonText, StrictJsonRoute, page_by_id
from services.gateway.cursors import HIGHEST_ID, decode_id
from services.gateway.deps import CallDep, Cursor, IdempotencyKey, Limit
from services.gateway.refusals import wrong_field
from services.gateway.schemas.knowledge_bases import KnowledgeBase, KnowledgeBaseCreate, KnowledgeBasePatch
from services.gateway.schemas.lists import ItemList
from services.gateway.store import knowledge_bases as store
from services.gateway.store.idempotency import create_once
from shared.model_registry import ModelRegistry, UnknownModelError

router = APIRouter(prefix="/api/knowledge-bases", tags=["knowledge bases"], route_class=StrictJsonRoute)


@router.post("", status_code=201, response_model=KnowledgeBase, responses={409: {}, 413: {}})
async def create_knowledge_base(
    body: KnowledgeBaseCreate, call: CallDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """Creates a knowledge base."""
    columns = _columns(body, set(KnowledgeBaseCreate.model_fields), call.parts.registry)
    async with call.parts.pool.acquire() as connection, connection.transaction():

        async def create() -> str:
            return await store.create_knowledge_base(connection, call.tenant_id, columns)

        return JsonText(await create_once(connection, call.idempotent(idempotency_key, body), 201, create), 201)


@router.get("", response_model=ItemList[KnowledgeBase])
async def list_knowledge_bases(call: CallDep, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """Lists knowledge bases, newest first."""
    below = decode_id(cursor) if cursor is not None else HIGHEST_ID
    async with call.parts.pool.acquire() as connection:
        return page_by_id(await store.list_knowledge_bases(connection, call.tenant_id, below, limit))


@router.get("/{knowledge_base_id}", response_model=KnowledgeBase, responses={404: {}})
async def get_knowledge_base(knowledge_base_id: UUID, call: CallDep) -> Response:
    """Shows a knowledge base."""
    async with call.parts.pool.acquire() as connection:
        return JsonText(await store.read_knowledge_base(connection, call.tenant_id, knowledge_base_id))


@router.patch("/{knowledge_base_id}", response_model=KnowledgeBase, responses={404: {}, 409: {}, 413: {}})
async def update_knowledge_base(knowledge_base_id: UUID, body: KnowledgeBasePatch, call: CallDep) -> Response:
    """Changes fields of a knowledge base; its embedding model only while it has no documents."""
    columns = _columns(body, body.model_fields_set, call.parts.registry)
    async with call.parts.pool.acquire() as connection, connection.transaction():
        return JsonText(await store.update_knowledge_base(connection, call.tenant_id, knowledge_base_id, columns))


@router.delete("/{knowledge_base_id}", status_code=204, responses={404: {}})
async def delete_knowledge_base(knowledge_base_id: UUID, call: CallDep) -> Response:
    """Deletes a knowledge base with its documents, and takes it away from agents."""
    async with call.parts.pool.acquire() as connection, connection.transaction():
        await store.delete_knowledge_base(connection, call.tenant_id, knowledge_base_id)
    return Response(status_code=204)


def _columns(
    body: KnowledgeBaseCreate | KnowledgeBasePatch, fields: set[str], registry: ModelRegistry
) -> dict[str, Any]:
    columns = body.model_dump(include=fields)
    if "embedding_model" in fields:
        columns["embedding_model"] = _model_name(body.embedding_model, registry)
    return columns


def _model_name(name: str | None, registry: ModelRegistry) -> str:
    try:
        return registry.embedding_model(name).name
    except UnknownModelError:
        usable = ", ".join(model.name for model in registry.embedding.values() if model.usable)
        message = f"There is no such embedding model; usable ones: {usable}"
        raise wrong_field("embedding_model", "unknown_model", message) from None
