"""Rows for tests that start below the gateway: a tenant, an agent with granted knowledge bases, a session, posted messages."""

from dataclasses import dataclass
from uuid import UUID

from shared.conversation import SQL as CONVERSATION
from shared.conversation import post_message
from shared.db.pool import Pool
from shared.ids import new_id


@dataclass(frozen=True, slots=True)
class SeededSession:
    """A session and what it belongs to."""

    tenant_id: UUID
    knowledge_base_id: UUID
    agent_id: UUID
    session_id: UUID


async def seed_session(
    pool: Pool, *, model: str = "scripted", max_steps: int = 20, tenant_id: UUID | None = None
) -> SeededSession:
    """A new tenant (or this one) with a knowledge base, an agent that may search it, and a session."""
    seeded = SeededSession(tenant_id or new_id(), new_id(), new_id(), new_id())
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(
            "INSERT INTO tenant (id, name) VALUES ($1, $2) ON CONFLICT DO NOTHING",
            seeded.tenant_id,
            str(seeded.tenant_id),
        )
        await connection.execute(
            "INSERT INTO knowledge_base (tenant_id, id, name, embedding_model) VALUES ($1, $2, 'Handbook', 'e5-small')",
            seeded.tenant_id,
            seeded.knowledge_base_id,
        )
        await connection.execute(
            "INSERT INTO agent (tenant_id, id, name, model, tools, max_steps)"
            " VALUES ($1, $2, 'Guide', $3, '{KnowledgeTool,CurrentTimeTool}', $4)",
            seeded.tenant_id,
            seeded.agent_id,
            model,
            max_steps,
        )
        await connection.execute(
            "INSERT INTO agent_knowledge_base (tenant_id, agent_id, knowledge_base_id, position) VALUES ($1, $2, $3, 0)",
            seeded.tenant_id,
            seeded.agent_id,
            seeded.knowledge_base_id,
        )
        await connection.execute(
            "INSERT INTO chat_session (tenant_id, id, agent_id) VALUES ($1, $2, $3)",
            seeded.tenant_id,
            seeded.session_id,
            seeded.agent_id,
        )
    return seeded


async def post(pool: Pool, seeded: SeededSession, content: str) -> UUID:
    """Posts a message as the gateway does; returns the run's id."""
    run_id = new_id()
    async with pool.acquire() as connection, connection.transaction():
        await connection.fetchrow(CONVERSATION["lock_session"], seeded.tenant_id, seeded.session_id)
        await post_message(
            connection,
            tenant_id=seeded.tenant_id,
            session_id=seeded.session_id,
            message_id=new_id(),
            run_id=run_id,
            content=content,
            metadata={},
            request_id="test",
        )
    return run_id
