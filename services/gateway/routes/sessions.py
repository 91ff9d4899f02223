"""Sessions: conversations with an agent."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Response

from services.gateway.answers import JsonText, StrictJsonRoute, page_by_id
from services.gateway.cursors import HIGHEST_ID, decode_id
from services.gateway.deps import CallDep, Cursor, IdempotencyKey, Limit
from services.gateway.schemas.lists import ItemList
from services.gateway.schemas.sessions import Session, SessionCreate, SessionPatch
from services.gateway.store import sessions as store
from services.gateway.store.idempotency import create_once

router = APIRouter(prefix="/api/sessions", tags=["sessions"], route_class=StrictJsonRoute)


@router.post("", status_code=201, response_model=Session, responses={404: {}, 409: {}, 413: {}})
async def create_session(body: SessionCreate, call: CallDep, idempotency_key: IdempotencyKey = None) -> Response:
    """Creates a session with an agent."""
    async with call.parts.pool.acquire() as connection, connection.transaction():

        async def create() -> str:
            return await store.create_session(connection, call.tenant_id, body.agent_id, body.title)

        return JsonText(await create_once(connection, call.idempotent(idempotency_key, body), 201, create), 201)


@router.get("", response_model=ItemList[Session])
async def list_sessions(
    call: CallDep,
    agent_id: Annotated[UUID | None, Query(description="Only sessions with this agent.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Lists sessions, newest first."""
    below = decode_id(cursor) if cursor is not None else HIGHEST_ID
    async with call.parts.pool.acquire() as connection:
        return page_by_id(await store.list_sessions(connection, call.tenant_id, agent_id, below, limit))


@router.get("/{session_id}", response_model=Session, responses={404: {}})
async def get_session(session_id: UUID, call: CallDep) -> Response:
    """Shows a session."""
    async with call.parts.pool.acquire() as connection:
        return JsonText(await store.read_session(connection, call.tenant_id, session_id))


@router.patch("/{session_id}", response_model=Session, responses={404: {}, 413: {}})
async def update_session(session_id: UUID, body: SessionPatch, call: CallDep) -> Response:
    """Renames a session."""
    async with call.parts.session_turns.at(session_id), call.parts.pool.acquire() as connection:
        return JsonText(await store.rename_session(connection, call.tenant_id, session_id, body.title))


@router.delete("/{session_id}", status_code=204, responses={404: {}})
async def delete_session(session_id: UUID, call: CallDep) -> Response:
    """Deletes a session with its messages; whatever works on it stops."""
    async with (
        call.parts.session_turns.at(session_id),
        call.parts.pool.acquire() as connection,
        connection.transaction(),
    ):
        await store.delete_session(connection, call.tenant_id, session_id)
    return Response(status_code=204)
