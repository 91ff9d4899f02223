"""Posting and cancelling: the gateway's two ways to move a conversation on, by the statements of shared.conversation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import asyncpg
import orjson

from services.gateway.refusals import Refusal, not_found
from services.gateway.store.idempotency import IdempotentRequest, is_answered
from services.gateway.store.sessions import lock_unfinished_runs
from shared.contracts.hints import EventFrame
from shared.conversation import SQL, Advance, Ending, advance_run, post_message
from shared.db.pool import AnyConnection
from shared.errors import LeaseLost
from shared.ids import new_id
from shared.json_text import to_json

WhenBusy = Literal["enqueue", "reject", "interrupt"]

_RUN_FIELDS = (
    "id",
    "session_id",
    "state",
    "reason",
    "step",
    "error",
    "usage",
    "created_at",
    "started_at",
    "finished_at",
)


@dataclass(frozen=True, slots=True)
class NewMessage:
    """What a user says in a session, and what is to happen when a run of it is unfinished."""

    tenant_id: UUID
    session_id: UUID
    content: str
    when_busy: WhenBusy
    request_id: str | None


@dataclass(frozen=True, slots=True)
class Posted:
    """The answer, the events, and the runs that had to make way."""

    body: str
    run_id: UUID
    frames: list[EventFrame]
    cancelled: list[UUID]


async def post(connection: AnyConnection, new: NewMessage, queue_limit: int) -> Posted:
    """Stores a message and its run; the caller has opened the transaction. Raises Refusal."""
    frames: list[EventFrame] = []
    cancelled: list[UUID] = []
    if new.when_busy == "interrupt":
        # Before the session is locked: runs come first in the order of locks.
        cancelled, frames = await _cancel_all(connection, new.tenant_id, new.session_id)
    _require_welcome(await connection.fetchrow(SQL["lock_session"], new.tenant_id, new.session_id))
    if new.when_busy == "reject":
        await _require_idle(connection, new)
    posted = await post_message(
        connection,
        tenant_id=new.tenant_id,
        session_id=new.session_id,
        message_id=new_id(),
        run_id=(run_id := new_id()),
        content=new.content,
        metadata={},
        request_id=new.request_id,
    )
    position = orjson.loads(posted.frames[-1].data)["position"]
    if position >= queue_limit:
        raise Refusal("session_queue_full", "Too many messages of this session wait for an answer.", retry_after=5)
    run = {name: posted.run[name] for name in _RUN_FIELDS} | {"position": position}
    body: dict[str, Any] = {"message": posted.message, "run": run, "last_seq": posted.last_seq_before}
    return Posted(to_json(body), run_id, frames + posted.frames, cancelled)


async def cancel(connection: AnyConnection, run_id: UUID, session_id: UUID) -> list[EventFrame]:
    """Ends a run from outside; no events when it has ended before."""
    try:
        return await advance_run(connection, run_id, None, session_id, Advance(ending=Ending("cancelled")))
    except LeaseLost:
        return []


@dataclass(frozen=True, slots=True)
class Emptied:
    """What became of a session's queue: the oldest unfinished run, which was left alone, and the events of the others' ends."""

    oldest: UUID | None
    frames: list[EventFrame]


async def empty_queue(
    connection: AnyConnection, tenant_id: UUID, session_id: UUID, request: IdempotentRequest | None
) -> Emptied:
    """Ends all unfinished runs of a session but the oldest; the caller has opened the transaction.

    Once this is committed the oldest may end by itself and no other begins. Does nothing for a request that was answered before: that is
    looked up after the runs, so that the run which it made is never among them. Raises Refusal for a session that takes no messages.
    """
    run_ids = await lock_unfinished_runs(connection, tenant_id, session_id)
    if not run_ids or (request is not None and await is_answered(connection, request)):
        return Emptied(None, [])
    _require_welcome(await connection.fetchrow(SQL["lock_session"], tenant_id, session_id))
    return Emptied(run_ids[0], await _cancel_newest_first(connection, session_id, run_ids[1:]))


def _require_welcome(session: asyncpg.Record | None) -> None:
    if session is None:
        raise not_found("session")
    if session["agent_deleted"]:
        raise Refusal("agent_deleted", "The agent of this session was deleted.")


async def _cancel_all(
    connection: AnyConnection, tenant_id: UUID, session_id: UUID
) -> tuple[list[UUID], list[EventFrame]]:
    run_ids = await lock_unfinished_runs(connection, tenant_id, session_id)
    return run_ids, await _cancel_newest_first(connection, session_id, run_ids)


async def _cancel_newest_first(
    connection: AnyConnection, session_id: UUID, run_ids: Sequence[UUID]
) -> list[EventFrame]:
    """So none of them is told a new place that it will not keep, and none begins."""
    return [frame for run_id in reversed(run_ids) for frame in await cancel(connection, run_id, session_id)]


async def _require_idle(connection: AnyConnection, new: NewMessage) -> None:
    run_id = await connection.fetchval(SQL["find_unfinished_run"], new.tenant_id, new.session_id)
    if run_id is not None:
        raise Refusal("session_busy", f"Run {run_id} of this session has not ended.", run_id=run_id)
