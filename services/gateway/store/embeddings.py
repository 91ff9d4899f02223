"""Which model embeds a knowledge base: changing it, going back, and letting the former one go."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from uuid import UUID

from services.gateway.refusals import Refusal, not_found
from shared.contracts.hints import EventFrame
from shared.db.pool import AnyConnection
from shared.db.queries import load_queries
from shared.generations import (
    Serving,
    append_embedding_event,
    discard_generations,
    is_complete,
    lock_generations,
    serve_generation,
)

SQL = load_queries(Path(__file__).with_name("embeddings.sql"))


@dataclass(frozen=True, slots=True)
class Base:
    """A knowledge base, on whose behalf."""

    tenant_id: UUID
    id: UUID
    request_id: str | None


@dataclass(frozen=True, slots=True)
class _Generation:
    generation: int
    model: str
    state: Literal["building", "failed", "kept"]


async def serving_model(connection: AnyConnection, tenant_id: UUID, knowledge_base_id: UUID) -> str:
    """Raises Refusal when the tenant has no such knowledge base."""
    model: str | None = await connection.fetchval(SQL["serving_model"], tenant_id, knowledge_base_id)
    if model is None:
        raise not_found("knowledge base")
    return model


async def change_model(connection: AnyConnection, base: Base, model: str) -> list[EventFrame]:
    """Has another model embed a base; the former one serves until the new one's vectors are complete. The events.

    At once where there are no documents, and where the model is the previous one, whose vectors are kept. A change under way is called off,
    also by the name of the model that serves; one to the same model goes on, and is tried again when it has failed.
    """
    serving = await _lock(connection, base)
    beside = await _beside(connection, base)
    if model == serving.model:
        return await _call_off(connection, base)
    if not await connection.fetchval(SQL["has_documents"], base.tenant_id, base.id):
        await discard_generations(connection, base.tenant_id, base.id, ["building", "failed", "kept"])
        await connection.execute(SQL["set_embedding_model"], base.tenant_id, base.id, model)
    elif (same := next((one for one in beside if one.model == model), None)) is None:
        await discard_generations(connection, base.tenant_id, base.id, ["building", "failed"])
        await connection.execute(SQL["begin_generation"], base.tenant_id, base.id, model, base.request_id)
    elif same.state == "kept":
        await discard_generations(connection, base.tenant_id, base.id, ["building", "failed"])
        await _return_to(connection, base, serving, same)
    elif same.state == "failed":
        await _resume(connection, base, same)
    else:
        return []
    return await append_embedding_event(connection, base.tenant_id, base.id)


async def roll_back(connection: AnyConnection, base: Base) -> list[EventFrame]:
    """Undoes the last change: one under way, or failed, is called off; else the previous model serves again. The events.

    Raises Refusal when there is neither.
    """
    serving = await _lock(connection, base)
    beside = await _beside(connection, base)
    if any(one.state != "kept" for one in beside):
        return await _call_off(connection, base)
    if not beside:
        raise Refusal("no_previous_embedding", "The embedding model was not changed, or its previous vectors are gone.")
    await _return_to(connection, base, serving, beside[0])
    return await append_embedding_event(connection, base.tenant_id, base.id)


async def discard_previous(connection: AnyConnection, base: Base) -> list[EventFrame]:
    """Lets the previous model's vectors go. The events. Raises Refusal when there are none."""
    await _lock(connection, base)
    if not await discard_generations(connection, base.tenant_id, base.id, ["kept"]):
        raise not_found("previous embedding")
    return await append_embedding_event(connection, base.tenant_id, base.id)


async def _lock(connection: AnyConnection, base: Base) -> Serving:
    serving = await lock_generations(connection, base.tenant_id, base.id)
    if serving is None:
        raise not_found("knowledge base")
    return serving


async def _beside(connection: AnyConnection, base: Base) -> list[_Generation]:
    rows = await connection.fetch(SQL["find_generations"], base.tenant_id, base.id)
    return [_Generation(**dict(row)) for row in rows]


async def _call_off(connection: AnyConnection, base: Base) -> list[EventFrame]:
    if not await discard_generations(connection, base.tenant_id, base.id, ["building", "failed"]):
        return []
    return await append_embedding_event(connection, base.tenant_id, base.id)


async def _return_to(connection: AnyConnection, base: Base, serving: Serving, kept: _Generation) -> None:
    """At once, or, where a document has no vectors of that model, as soon as it has."""
    if await is_complete(connection, base.id, serving.generation, kept.generation):
        await serve_generation(connection, base.tenant_id, base.id, kept.generation)
    else:
        await _resume(connection, base, kept)


async def _resume(connection: AnyConnection, base: Base, generation: _Generation) -> None:
    await connection.execute(SQL["resume_generation"], base.tenant_id, base.id, generation.generation, base.request_id)
