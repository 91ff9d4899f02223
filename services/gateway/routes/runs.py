"""Runs: answers being worked on."""

from typing import Annotated
from uuid import UUID

import structlog
from fastapi import APIRouter, Path, Response

from services.gateway.answers import JsonText, StrictJsonRoute, page_by_number
from services.gateway.cancelling import let_runner_end
from services.gateway.cursors import decode_number
from services.gateway.deps import CallDep, Cursor, Limit
from services.gateway.schemas.lists import ItemList
from services.gateway.schemas.runs import Run, RunStep, StepResolve
from services.gateway.store import runs as store
from services.gateway.store.messages import cancel
from shared.contracts.hints import RunCancelled
from shared.conversation import Decision
from shared.hints import stream_advanced
from shared.logging import log_context

router = APIRouter(prefix="/api", tags=["runs"], route_class=StrictJsonRoute)

StepNumber = Annotated[int, Path(ge=1, le=2**31 - 1)]

log = structlog.get_logger()


@router.get("/sessions/{session_id}/runs", response_model=ItemList[Run], responses={404: {}})
async def list_runs(session_id: UUID, call: CallDep, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """Lists the runs of a session, oldest first."""
    above = decode_number(cursor) if cursor is not None else 0
    async with call.parts.pool.acquire() as connection:
        return page_by_number(await store.list_runs(connection, call.tenant_id, session_id, above, limit))


@router.get("/runs/{run_id}", response_model=Run, responses={404: {}})
async def get_run(run_id: UUID, call: CallDep) -> Response:
    """Shows a run."""
    async with call.parts.pool.acquire() as connection:
        return JsonText(await store.read_run(connection, call.tenant_id, run_id))


@router.get("/runs/{run_id}/steps", response_model=ItemList[RunStep], responses={404: {}})
async def list_run_steps(run_id: UUID, call: CallDep, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """Lists the journal of a run: every question to the model and every call of a tool."""
    above = decode_number(cursor) if cursor is not None else 0
    async with call.parts.pool.acquire() as connection:
        return page_by_number(await store.list_run_steps(connection, call.tenant_id, run_id, above, limit))


@router.post("/runs/{run_id}/cancel", status_code=202, response_model=Run, responses={404: {}})
async def cancel_run(run_id: UUID, call: CallDep) -> Response:
    """Ends a run now. Doing it again, or after the end, changes nothing.

    The part of a reply that was streamed becomes a message with `metadata.interrupted`, before `run.finished`; text that has no message by
    then is void. A call that must not be made twice and was under way is `unknown` afterwards.
    """
    async with call.parts.pool.acquire() as connection:
        session_id = await store.find_session_of_run(connection, call.tenant_id, run_id)
    await let_runner_end(call.parts.pool, call.parts.hints, run_id)
    async with call.parts.session_turns.at(session_id), call.parts.pool.acquire() as connection:
        frames = await cancel(connection, run_id, session_id)
        body = await store.read_run(connection, call.tenant_id, run_id)
    if frames:
        call.parts.relay.nudge()
        call.parts.hints.send(stream_advanced(session_id, frames))
        call.parts.hints.send(RunCancelled(run_id=run_id))
        with log_context(session_id=session_id, run_id=run_id):
            log.info("run.cancelled")
    return JsonText(body, 202)


@router.post("/runs/{run_id}/steps/{n}/resolve", response_model=RunStep, responses={404: {}, 409: {}, 413: {}})
async def resolve_step(run_id: UUID, n: StepNumber, body: StepResolve, call: CallDep) -> Response:
    """Says what became of a call whose outcome is unknown. It is never made again by itself; saying the same again changes nothing."""
    decision = Decision(body.outcome, body.result)
    async with call.parts.pool.acquire() as connection, connection.transaction():
        resolved = await store.resolve_step(connection, call.tenant_id, run_id, n, decision, call.key_hash)
    if resolved.frames:
        call.parts.hints.send(stream_advanced(resolved.session_id, resolved.frames))
        with log_context(session_id=resolved.session_id, run_id=run_id):
            log.info("step.resolved", n=n, outcome=body.outcome)
    return JsonText(resolved.body)
