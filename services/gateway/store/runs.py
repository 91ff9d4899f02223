"""Runs and their journals, for reading; they are written by shared.conversation."""

from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from services.gateway.refusals import Refusal, not_found
from services.gateway.store.pages import Page
from services.gateway.store.sessions import require_session
from shared import conversation
from shared.contracts.hints import EventFrame
from shared.conversation import Decision
from shared.db.pool import AnyConnection, Pool
from shared.db.queries import load_queries

SQL = load_queries(Path(__file__).with_name("runs.sql"))


@dataclass(frozen=True, slots=True)
class Resolved:
    """A step after a user's decision on it, and the events; none when the same was decided before."""

    body: str
    session_id: UUID
    frames: list[EventFrame]


async def read_run(connection: AnyConnection, tenant_id: UUID, run_id: UUID) -> str:
    body: str | None = await connection.fetchval(SQL["read_run"], tenant_id, run_id)
    if body is None:
        raise not_found("run")
    return body


async def find_session_of_run(connection: AnyConnection, tenant_id: UUID, run_id: UUID) -> UUID:
    session_id: UUID | None = await connection.fetchval(SQL["find_session_of_run"], tenant_id, run_id)
    if session_id is None:
        raise not_found("run")
    return session_id


async def list_runs(connection: AnyConnection, tenant_id: UUID, session_id: UUID, above: int, limit: int) -> Page[int]:
    await require_session(connection, tenant_id, session_id)
    rows = await connection.fetch(SQL["list_runs"], tenant_id, session_id, above, limit + 1)
    return Page.of(rows, "seq", limit)


async def list_run_steps(connection: AnyConnection, tenant_id: UUID, run_id: UUID, above: int, limit: int) -> Page[int]:
    await find_session_of_run(connection, tenant_id, run_id)
    rows = await connection.fetch(SQL["list_run_steps"], tenant_id, run_id, min(above, 2**31 - 1), limit + 1)
    return Page.of(rows, "n", limit)


async def resolve_step(
    connection: AnyConnection, tenant_id: UUID, run_id: UUID, n: int, decision: Decision, key_hash: bytes
) -> Resolved:
    """Records a user's decision, once; the caller has opened the transaction. Raises Refusal."""
    session_id = await find_session_of_run(connection, tenant_id, run_id)
    frames = await conversation.resolve_step(
        connection,
        tenant_id=tenant_id,
        session_id=session_id,
        run_id=run_id,
        n=n,
        decision=decision,
        key_hash=key_hash,
    )
    step = await connection.fetchrow(SQL["read_run_step"], tenant_id, run_id, n)
    if step is None:
        raise not_found("step")
    made = step["resolution"]
    if made is None or Decision(made["outcome"], made["result"]) != decision:
        raise Refusal("step_not_unknown", "There is nothing to decide about this step.")
    return Resolved(step["body"], session_id, frames)


async def is_thinking(pool: Pool, run_id: UUID) -> bool:
    """Whether a model is being asked in a run at this moment."""
    return bool(await pool.fetchval(SQL["run_is_thinking"], run_id))
