"""The runner's reads and writes."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from services.agent_runner.models.types import ModelOptions, ToolCall
from services.agent_runner.progress import RunProgress
from services.agent_runner.settings import MemorySettings
from services.agent_runner.steps import Agent, GrantedKnowledgeBase, StoredMessage
from shared.contracts.agent_knowledge import AgentKnowledge
from shared.contracts.hints import EventFrame
from shared.conversation import SQL as CONVERSATION
from shared.conversation import Advance, ClaimedRun, advance_run, claim_runs
from shared.db.pool import Pool
from shared.db.queries import load_queries
from shared.errors import LeaseLost
from shared.json_text import to_json
from shared.leases import PRESENCE_CLASS, LeaseSettings

SQL = load_queries(Path(__file__).with_name("queries.sql"))


class RunStore:
    """Runs in PostgreSQL, as this owner sees them."""

    def __init__(self, pool: Pool, owner: UUID, leases: LeaseSettings, memory: MemorySettings) -> None:
        self._pool = pool
        self._owner = owner
        self._leases = leases
        self._memory = memory

    async def claim(self, limit: int, without: Sequence[UUID]) -> list[ClaimedRun]:
        """Takes up to `limit` runs for a lease, none of the tenants `without`."""
        async with self._pool.acquire() as connection:
            return await claim_runs(connection, self._owner, self._leases.lease_interval, limit, without)

    async def load(self, claimed: ClaimedRun) -> RunProgress:
        """What the run knows. Raises LeaseLost when its session has been deleted meanwhile."""
        async with self._pool.acquire() as connection:
            agent = await connection.fetchrow(SQL["load_agent"], claimed.tenant_id, claimed.session_id)
            rows = await connection.fetch(
                SQL["load_messages"], claimed.session_id, claimed.seq, self._memory.max_messages
            )
            # Nothing was begun in a run that has never thought.
            started = (
                await connection.fetch(CONVERSATION["find_started_steps"], claimed.tenant_id, claimed.run_id)
                if claimed.step
                else []
            )
        if agent is None:
            raise LeaseLost("the session was deleted")
        return RunProgress(
            tenant_id=claimed.tenant_id,
            session_id=claimed.session_id,
            run_id=claimed.run_id,
            agent=_agent(agent),
            messages=[_message(row) for row in reversed(rows)],
            usage=claimed.usage,
            attempt=claimed.epoch,
            started={row["n"]: row["message_id"] for row in started},
        )

    async def advance(self, claimed: ClaimedRun, advance: Advance) -> list[EventFrame]:
        """Commits one step, fenced by the lease's epoch."""
        async with self._pool.acquire() as connection:
            return await advance_run(connection, claimed.run_id, claimed.epoch, claimed.session_id, advance)

    async def renew(self, run_ids: list[UUID]) -> Iterable[UUID]:
        """Renews leases; the ids that are still ours."""
        rows = await self._pool.fetch(SQL["renew_leases"], run_ids, self._owner, self._leases.lease_interval)
        return [row["id"] for row in rows]

    async def release(self, claimed: ClaimedRun, delay: timedelta, *, counts: bool) -> None:
        """Hands a run back for `delay` later; harmless when the lease is lost."""
        await self._pool.execute(SQL["release_run"], claimed.run_id, claimed.epoch, delay, counts)

    async def requeue_abandoned(self, held: Sequence[UUID]) -> list[UUID]:
        """Queues the runs again whose owner is gone, and those of this process that are not `held`; their ids."""
        arguments = (PRESENCE_CLASS, self._leases.orphaned_after, self._leases.max_backoff, self._owner, held)
        return [row["id"] for row in await self._pool.fetch(SQL["requeue_abandoned_runs"], *arguments)]


def _agent(row: asyncpg.Record) -> Agent:
    options: dict[str, Any] = dict(row["options"])
    return Agent(
        name=row["name"],
        system_prompt=row["system_prompt"],
        model=row["model"],
        tools=tuple(row["tools"]),
        options=ModelOptions(
            temperature=options.pop("temperature", None),
            top_p=options.pop("top_p", None),
            max_tokens=options.pop("max_tokens", None),
            extra=options,
        ),
        max_steps=row["max_steps"],
        knowledge_bases=tuple(
            GrantedKnowledgeBase(UUID(base["id"]), base["name"], base["description"]) for base in row["knowledge_bases"]
        ),
        # Refused whole where a newer release knows more: a filter that is obeyed in part lets through what it was to keep out.
        knowledge=AgentKnowledge.model_validate_json(to_json(row["knowledge"])),
    )


def _message(row: asyncpg.Record) -> StoredMessage:
    return StoredMessage(
        run_id=row["run_id"],
        role=row["role"],
        content=row["content"],
        tool_calls=tuple(ToolCall(call["id"], call["name"], call["arguments"]) for call in row["tool_calls"]),
        tool_call_id=row["tool_call_id"],
        metadata=row["metadata"],
    )
