"""Messages: what is said in a session. Posting one is what everything else is for."""

from typing import Annotated, Literal
from uuid import UUID

import structlog
from fastapi import APIRouter, Query, Response

from services.gateway.answers import JsonText, StrictJsonRoute, page_by_number
from services.gateway.cancelling import let_runner_end
from services.gateway.cursors import HIGHEST_NUMBER, decode_number
from services.gateway.deps import Call, CallDep, Cursor, IdempotencyKey, Limit, Parts
from services.gateway.schemas.lists import ItemList
from services.gateway.schemas.sessions import AcceptedMessage, Message, MessageCreate
from services.gateway.store import messages as store
from services.gateway.store.idempotency import IdempotentRequest, create_once, is_answered
from services.gateway.store.sessions import list_messages
from shared.contracts.hints import RunCancelled
from shared.failpoints import failpoint
from shared.hints import stream_advanced
from shared.logging import log_context

router = APIRouter(prefix="/api/sessions/{session_id}/messages", tags=["messages"], route_class=StrictJsonRoute)

log = structlog.get_logger()


@router.post("", status_code=202, response_model=AcceptedMessage, responses={404: {}, 409: {}, 413: {}, 429: {}})
async def post_message(
    session_id: UUID, body: MessageCreate, call: CallDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """Stores a message and queues the run that answers it. Follow the answer at `/api/sessions/{id}/events?after={last_seq}`."""
    new = store.NewMessage(call.tenant_id, session_id, body.content, body.when_busy, call.request_id)
    request = call.idempotent(idempotency_key, body)
    posted: store.Posted | None = None
    async with call.parts.session_turns.at(session_id):
        if body.when_busy == "interrupt":
            await _make_way(call, session_id, request)
        async with call.parts.pool.acquire() as connection, connection.transaction():

            async def create() -> str:
                nonlocal posted
                await call.parts.admission.require_room(connection, call.tenant_id, "run")
                posted = await store.post(connection, new, call.parts.settings.limits.runs_per_session)
                return posted.body

            answer = await create_once(connection, request, 202, create)
    failpoint("message_committed")
    if posted is not None:
        _announce(call.parts, session_id, posted)
    return JsonText(answer, 202)


async def _make_way(call: Call, session_id: UUID, request: IdempotentRequest | None) -> None:
    """Ends what waits in the session, then lets the runner end what it is saying, so that the text that was streamed is kept.

    In transactions of their own: the runner can't commit while the session is locked here, and nothing may begin when it has. What is
    still there afterwards is ended with the post.
    """
    parts = call.parts
    async with parts.pool.acquire() as connection, connection.transaction():
        if request is not None and await is_answered(connection, request):
            return  # however full it is now
        await parts.admission.require_room(connection, call.tenant_id, "run")
        emptied = await store.empty_queue(connection, call.tenant_id, session_id, request)
    if emptied.frames:
        parts.hints.send(stream_advanced(session_id, emptied.frames))
    if emptied.oldest is not None:
        await let_runner_end(parts.pool, parts.hints, emptied.oldest)


def _announce(parts: Parts, session_id: UUID, posted: store.Posted) -> None:
    parts.relay.nudge()
    parts.hints.send(stream_advanced(session_id, posted.frames))
    for run_id in posted.cancelled:
        parts.hints.send(RunCancelled(run_id=run_id))
    with log_context(session_id=session_id, run_id=posted.run_id):
        log.info("run.accepted", interrupted=len(posted.cancelled))


@router.get("", response_model=ItemList[Message], responses={404: {}})
async def list_messages_of_session(
    session_id: UUID,
    call: CallDep,
    order: Annotated[Literal["asc", "desc"], Query(description="Oldest or newest first.")] = "asc",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Lists the messages of a session, the model's and the tools' included."""
    start = 0 if order == "asc" else HIGHEST_NUMBER
    beyond = decode_number(cursor) if cursor is not None else start
    async with call.parts.pool.acquire() as connection:
        return page_by_number(await list_messages(connection, call.tenant_id, session_id, order, beyond, limit))
