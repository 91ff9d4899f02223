"""Runs and their journals, for reading; they are written by shared.conversation."""

from pathlib import Path
from uuid import UUID

from services.gateway.refusals import not_found
from services.gateway.store.pages import Page
from services.gateway.store.sessions import require_session
from shared.db.pool import AnyConnection
from shared.db.queries import load_queries

SQL = load_queries(Path(__file__).with_name("runs.sql"))


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


async def count_unfinished_runs(connection: AnyConnection, tenant_id: UUID, limit: int) -> int:
    """At most `limit`."""
    count: int = await connection.fetchval(SQL["count_unfinished_runs"], tenant_id, limit)
    return count
