"""Generations of a knowledge base's embedding: which one serves, and how another one comes to serve.

Locks are taken in one order: documents, the base's advisory lock, knowledge_base, embedding_generation. Who adds chunks holds the advisory
lock in common, so that what `is_complete` says under `lock_generations` stays so until the commit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal
from uuid import UUID

from shared.contracts.hints import EventFrame
from shared.db.pool import AnyConnection
from shared.db.queries import load_queries
from shared.events import to_frames

SQL = load_queries(Path(__file__).with_name("generations.sql"))

GenerationState = Literal["building", "failed", "kept"]

_SEARCHES_END = timedelta(seconds=60)  # a search that read which generation serves has ended by then
_COMPARING_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Serving:
    """The generation that searches read, and its model."""

    generation: int
    model: str


async def lock_generations(connection: AnyConnection, tenant_id: UUID, knowledge_base_id: UUID) -> Serving | None:
    """What serves a knowledge base, and will until the commit; None when the tenant has no such base."""
    await connection.execute(SQL["lock_generations"], knowledge_base_id)
    row = await connection.fetchrow(SQL["lock_knowledge_base"], tenant_id, knowledge_base_id)
    return Serving(row["generation"], row["model"]) if row is not None else None


async def is_complete(connection: AnyConnection, knowledge_base_id: UUID, serving: int, other: int) -> bool:
    """Whether no vector of `serving`, the generation that serves, lacks its counterpart in the generation `other`."""
    complete: bool = await connection.fetchval(
        SQL["is_complete"], knowledge_base_id, serving, other, timeout=_COMPARING_SECONDS
    )
    return complete


async def discard_generations(
    connection: AnyConnection,
    tenant_id: UUID,
    knowledge_base_id: UUID,
    states: Sequence[GenerationState],
    but: int = 0,
) -> bool:
    """Gives up a base's generations in these states, except the generation `but`; whether there were any."""
    found = False
    for state in states:
        rows = await connection.fetch(
            SQL["discard_generations"], tenant_id, knowledge_base_id, state, but, _SEARCHES_END
        )
        found = found or bool(rows)
    return found


async def serve_generation(
    connection: AnyConnection, tenant_id: UUID, knowledge_base_id: UUID, generation: int
) -> None:
    """Cuts over to a complete generation, under `lock_generations`. The former one is kept, and the one kept until now given up."""
    await discard_generations(connection, tenant_id, knowledge_base_id, ["kept"], but=generation)
    model = await connection.fetchval(SQL["take_generation"], tenant_id, knowledge_base_id, generation)
    await connection.execute(SQL["keep_generation"], tenant_id, knowledge_base_id)
    await connection.execute(SQL["serve_generation"], tenant_id, knowledge_base_id, generation, model)


async def append_embedding_event(
    connection: AnyConnection, tenant_id: UUID, knowledge_base_id: UUID
) -> list[EventFrame]:
    """Appends the base's embedding as it is now to its log; call it in the transaction that changed it.

    Returns the event as a frame for the hint.
    """
    rows = await connection.fetch(SQL["append_embedding_event"], tenant_id, knowledge_base_id)
    return to_frames(rows, "knowledge_base_id", knowledge_base_id)
