"""Knowledge bases: documents that are searched together."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Response

from services.gateway.answers import JsonText, StrictJsonRoute, page_by_id
from services.gateway.cursors import HIGHEST_ID, decode_id
from services.gateway.deps import CallDep, Cursor, IdempotencyKey, Limit, Parts
from services.gateway.refusals import wrong_field
from services.gateway.schemas.knowledge_bases import KnowledgeBase, KnowledgeBaseCreate, KnowledgeBasePatch
from services.gateway.schemas.lists import ItemList
from services.gateway.store import embeddings
from services.gateway.store import knowledge_bases as store
from services.gateway.store.idempotency import create_once
from shared.contracts.hints import EventFrame
from shared.hints import stream_advanced
from shared.model_registry import EmbeddingModel, UnknownModelError

router = APIRouter(prefix="/api/knowledge-bases", tags=["knowledge bases"], route_class=StrictJsonRoute)


@router.post("", status_code=201, response_model=KnowledgeBase, responses={409: {}, 413: {}})
async def create_knowledge_base(
    body: KnowledgeBaseCreate, call: CallDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """Creates a knowledge base."""
    columns = _columns(body, set(KnowledgeBaseCreate.model_fields))
    columns["embedding_model"] = await _usable_model(body.embedding_model, call.parts)
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
    """Changes fields of a knowledge base.

    Another embedding model embeds its documents in the background, while the former one serves: `embedding` says how far it has come.
    When it is complete it serves at once, and the former one's vectors are kept for some days.
    """
    model = await _changed_model(call, knowledge_base_id, body) if "embedding_model" in body.model_fields_set else None
    frames: list[EventFrame] = []
    async with call.parts.pool.acquire() as connection, connection.transaction():
        if model is not None:
            frames = await embeddings.change_model(connection, _base(call, knowledge_base_id), model)
        columns = _columns(body, body.model_fields_set)
        answer = await store.update_knowledge_base(connection, call.tenant_id, knowledge_base_id, columns)
    _announce(call, knowledge_base_id, frames)
    return JsonText(answer)


@router.post("/{knowledge_base_id}/embedding/rollback", response_model=KnowledgeBase, responses={404: {}, 409: {}})
async def roll_back_embedding(knowledge_base_id: UUID, call: CallDep) -> Response:
    """Undoes the last change of the embedding model: one under way is called off, else the previous model serves again, at once.

    Where vectors of the previous model are missing, because it did not answer while documents were added, they are made first.
    """
    async with call.parts.pool.acquire() as connection, connection.transaction():
        frames = await embeddings.roll_back(connection, _base(call, knowledge_base_id))
        answer = await store.read_knowledge_base(connection, call.tenant_id, knowledge_base_id)
    _announce(call, knowledge_base_id, frames)
    return JsonText(answer)


@router.delete("/{knowledge_base_id}/embedding/previous", status_code=204, responses={404: {}})
async def discard_previous_embedding(knowledge_base_id: UUID, call: CallDep) -> Response:
    """Lets the vectors of the previous embedding model go: there is no way back to it but to embed everything again."""
    async with call.parts.pool.acquire() as connection, connection.transaction():
        frames = await embeddings.discard_previous(connection, _base(call, knowledge_base_id))
    _announce(call, knowledge_base_id, frames)
    return Response(status_code=204)


@router.delete("/{knowledge_base_id}", status_code=204, responses={404: {}})
async def delete_knowledge_base(knowledge_base_id: UUID, call: CallDep) -> Response:
    """Deletes a knowledge base with its documents, and takes it away from agents."""
    async with call.parts.pool.acquire() as connection, connection.transaction():
        await store.delete_knowledge_base(connection, call.tenant_id, knowledge_base_id)
    return Response(status_code=204)


def _base(call: CallDep, knowledge_base_id: UUID) -> embeddings.Base:
    return embeddings.Base(call.tenant_id, knowledge_base_id, call.request_id)


def _announce(call: CallDep, knowledge_base_id: UUID, frames: Sequence[EventFrame]) -> None:
    if frames:
        call.parts.hints.send(stream_advanced(knowledge_base_id, frames))


async def _changed_model(call: CallDep, knowledge_base_id: UUID, body: KnowledgeBasePatch) -> str:
    """The model to change to. The one that serves is one whatever its state: to name it calls a change off."""
    model = _model(body.embedding_model, call.parts)
    async with call.parts.pool.acquire() as connection:
        serving = await embeddings.serving_model(connection, call.tenant_id, knowledge_base_id)
    return serving if model.name == serving else await _usable_model(body.embedding_model, call.parts)


def _columns(body: KnowledgeBaseCreate | KnowledgeBasePatch, fields: set[str]) -> dict[str, Any]:
    columns = body.model_dump(include=fields - {"settings", "embedding_model"})
    if "settings" in fields:
        columns["settings"] = body.settings.stored()
    return columns


def _model(name: str | None, parts: Parts) -> EmbeddingModel:
    try:
        return parts.registry.embedding_model(name)
    except UnknownModelError:
        usable = ", ".join(model.name for model in parts.registry.embedding.values() if model.usable)
        message = f"There is no such embedding model; usable ones: {usable}"
        raise wrong_field("embedding_model", "unknown_model", message) from None


async def _usable_model(name: str | None, parts: Parts) -> str:
    """Raises Refusal for a model that isn't there or can't embed anything. One that is away for a moment will do, as will the default."""
    model = _model(name, parts)
    if name is not None and (problem := await parts.model_status.lasting_problem(model)) is not None:
        raise wrong_field("embedding_model", "unusable_model", f"{model.name} can't be used: {problem}.")
    return model.name
