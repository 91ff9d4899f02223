"""Sessions and the reading of their messages; what moves a conversation on is in shared.conversation."""

from pathlib import Path
from typing import Literal
from uuid import UUID

from services.gateway.refusals import not_found
from services.gateway.store.pages import Page
from shared.db.pool import AnyConnection
from shared.db.queries import load_queries
from shared.ids import new_id

SQL = load_queries(Path(__file__).with_name("sessions.sql"))

Order = Literal["asc", "desc"]


async def create_session(connection: AnyConnection, tenant_id: UUID, agent_id: UUID, title: str) -> str:
    body: str | None = await connection.fetchval(SQL["create_session"], tenant_id, new_id(), agent_id, title)
    if body is None:
        raise not_found("agent")
    return body


async def read_session(connection: AnyConnection, tenant_id: UUID, session_id: UUID) -> str:
    return _found(await connection.fetchval(SQL["read_session"], tenant_id, session_id))


async def list_sessions(
    connection: AnyConnection, tenant_id: UUID, agent_id: UUID | None, below: UUID, limit: int
) -> Page[UUID]:
    if agent_id is None:
        rows = await connection.fetch(SQL["list_sessions"], tenant_id, below, limit + 1)
    else:
        rows = await connection.fetch(SQL["list_sessions_of_agent"], tenant_id, below, limit + 1, agent_id)
    return Page.of(rows, "id", limit)


async def rename_session(connection: AnyConnection, tenant_id: UUID, session_id: UUID, title: str) -> str:
    return _found(await connection.fetchval(SQL["rename_session"], tenant_id, session_id, title))


async def delete_session(connection: AnyConnection, tenant_id: UUID, session_id: UUID) -> None:
    """A run at work finds out at its next write."""
    await lock_unfinished_runs(connection, tenant_id, session_id)
    if await connection.fetchval(SQL["delete_session"], tenant_id, session_id) is None:
        raise not_found("session")


async def lock_unfinished_runs(connection: AnyConnection, tenant_id: UUID, session_id: UUID) -> list[UUID]:
    """The session's runs that have not ended, oldest first, locked until the commit."""
    rows = await connection.fetch(SQL["lock_runs_of_session"], tenant_id, session_id)
    return [row["id"] for row in rows]


async def require_session(connection: AnyConnection, tenant_id: UUID, session_id: UUID) -> None:
    if not await connection.fetchval(SQL["session_exists"], tenant_id, session_id):
        raise not_found("session")


async def list_messages(
    connection: AnyConnection, tenant_id: UUID, session_id: UUID, order: Order, beyond: int, limit: int
) -> Page[int]:
    """Messages with a seq above `beyond`, or below it in descending order."""
    await require_session(connection, tenant_id, session_id)
    query = SQL["list_messages"] if order == "asc" else SQL["list_messages_newest_first"]
    return Page.of(await connection.fetch(query, tenant_id, session_id, beyond, limit + 1), "seq", limit)


def _found(body: str | None) -> str:
    if body is None:
        raise not_found("session")
    return body
