"""Agents and their grants."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from services.gateway.refusals import not_found, wrong_field
from services.gateway.store.pages import Page
from shared.db.pool import AnyConnection
from shared.db.queries import load_queries
from shared.ids import new_id

SQL = load_queries(Path(__file__).with_name("agents.sql"))


async def create_agent(
    connection: AnyConnection, tenant_id: UUID, columns: dict[str, Any], knowledge_base_ids: Sequence[UUID]
) -> str:
    """A new agent; raises Refusal when a knowledge base doesn't exist."""
    agent_id = new_id()
    await connection.execute(
        SQL["create_agent"],
        tenant_id,
        agent_id,
        columns["name"],
        columns["description"],
        columns["system_prompt"],
        columns["model"],
        columns["tools"],
        columns["options"],
        columns["max_steps"],
        columns["knowledge"],
    )
    await _grant(connection, tenant_id, agent_id, knowledge_base_ids)
    return await read_agent(connection, tenant_id, agent_id)


async def read_agent(connection: AnyConnection, tenant_id: UUID, agent_id: UUID) -> str:
    body: str | None = await connection.fetchval(SQL["read_agent"], tenant_id, agent_id)
    if body is None:
        raise not_found("agent")
    return body


async def list_agents(connection: AnyConnection, tenant_id: UUID, below: UUID, limit: int) -> Page[UUID]:
    return Page.of(await connection.fetch(SQL["list_agents"], tenant_id, below, limit + 1), "id", limit)


async def update_agent(
    connection: AnyConnection,
    tenant_id: UUID,
    agent_id: UUID,
    columns: dict[str, Any],
    knowledge_base_ids: Sequence[UUID] | None,
) -> str:
    """Changes the given columns, and the grants unless they are None."""
    if await connection.fetchval(SQL["update_agent"], tenant_id, agent_id, columns) is None:
        raise not_found("agent")
    if knowledge_base_ids is not None:
        await connection.execute(SQL["revoke_grants"], tenant_id, agent_id)
        await _grant(connection, tenant_id, agent_id, knowledge_base_ids)
    return await read_agent(connection, tenant_id, agent_id)


async def delete_agent(connection: AnyConnection, tenant_id: UUID, agent_id: UUID) -> None:
    if await connection.fetchval(SQL["delete_agent"], tenant_id, agent_id) is None:
        raise not_found("agent")


async def _grant(
    connection: AnyConnection, tenant_id: UUID, agent_id: UUID, knowledge_base_ids: Sequence[UUID]
) -> None:
    if not knowledge_base_ids:
        return
    rows = await connection.fetch(SQL["lock_knowledge_bases"], tenant_id, knowledge_base_ids)
    missing = set(knowledge_base_ids) - {row["id"] for row in rows}
    if missing:
        names = ", ".join(sorted(map(str, missing)))
        raise wrong_field("knowledge_base_ids", "unknown_knowledge_base", f"There is no such knowledge base: {names}")
    await connection.execute(SQL["add_grants"], tenant_id, agent_id, knowledge_base_ids)
