"""The statements that move a conversation on: the only writers of run, chat_message, run_step and session_event.

Each is one round trip, because these five statements are most of what a run costs. They take row locks in the order runs of a session
(oldest first), session; a posted message takes the session's only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import asyncpg
import orjson

from shared.contracts.hints import EventFrame
from shared.db.pool import AnyConnection
from shared.db.queries import load_queries
from shared.errors import ErrorInfo, LeaseLost
from shared.events import to_frame, to_frames
from shared.json_text import to_json

SQL = load_queries(Path(__file__).with_name("conversation.sql"))

WorkingState = Literal["PLANNING", "THINKING", "EXECUTING"]
FinalState = Literal["FINISHED", "ERROR"]
Reason = Literal["completed", "step_limit", "cancelled", "budget", "error"]


@dataclass(frozen=True, slots=True)
class Event:
    """An event to append: its type and its fields."""

    type: str
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """A run and the lease on it. `step` counts the think steps that were begun before."""

    tenant_id: UUID
    session_id: UUID
    run_id: UUID
    seq: int
    step: int
    epoch: int
    attempts: int
    usage: dict[str, int]
    request_id: str | None
    waited: float  # seconds from acceptance to the claim
    frames: list[EventFrame]


@dataclass(frozen=True, slots=True)
class PostedMessage:
    """A stored user message as clients see it, its queued run by column name (JSON values), and their events."""

    message: dict[str, Any]
    run: dict[str, Any]
    last_seq_before: int
    frames: list[EventFrame]


@dataclass(frozen=True, slots=True)
class Decision:
    """What a user says of a step whose outcome is unknown; `result` is what the model is told of it."""

    outcome: Literal["done", "failed"]
    result: str | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ends."""

    reason: Reason
    usage: dict[str, int] | None = None
    error: ErrorInfo | None = None

    @property
    def state(self) -> FinalState:
        return "ERROR" if self.reason == "error" else "FINISHED"


@dataclass(frozen=True, slots=True)
class Advance:
    """One commit of a run: what becomes visible together.

    `message` and `journal` are rows by column name; `state` is the state afterwards (ignored when `ending` is given).
    """

    state: WorkingState | None = None
    step: int | None = None
    message: dict[str, Any] | None = None
    journal: dict[str, Any] | None = None
    usage: dict[str, int] | None = None
    ending: Ending | None = None
    announce: bool = field(default=True)  # write a run.state event for `state`
    events: tuple[Event, ...] = ()  # before those that follow from the rest


async def post_message(  # noqa: PLR0913 - the columns of two rows
    connection: AnyConnection,
    *,
    tenant_id: UUID,
    session_id: UUID,
    message_id: UUID,
    run_id: UUID,
    content: str,
    metadata: dict[str, Any],
    request_id: str | None,
) -> PostedMessage:
    """Appends a user's message and its run; the caller has locked the session (`lock_session`) in this transaction."""
    rows = await connection.fetch(
        SQL["post_message"], tenant_id, session_id, message_id, content, metadata, run_id, request_id
    )
    return PostedMessage(
        message=orjson.loads(rows[0]["message"]),
        run=orjson.loads(rows[0]["run"]),
        last_seq_before=rows[0]["seq"] - 1,
        frames=to_frames(rows, "session_id", session_id),
    )


async def claim_runs(
    connection: AnyConnection, owner: UUID, lease: timedelta, limit: int, without: Sequence[UUID] = ()
) -> list[ClaimedRun]:
    """Takes up to `limit` of the runs that wait, in the fair order over tenants; none of the tenants `without`."""
    rows = await connection.fetch(SQL["claim_runs"], owner, lease, limit, without)
    return [_claimed(row) for row in rows]


def _claimed(row: asyncpg.Record) -> ClaimedRun:
    event = {
        "seq": row["event_seq"],
        "type": row["type"],
        "payload": row["payload"],
        "created_at": row["event_created_at"],
    }
    return ClaimedRun(
        tenant_id=row["tenant_id"],
        session_id=row["session_id"],
        run_id=row["id"],
        seq=row["seq"],
        step=row["step"],
        epoch=row["lease_epoch"],
        attempts=row["attempts"],
        usage=row["usage"],
        request_id=row["request_id"],
        waited=(row["event_created_at"] - row["created_at"]).total_seconds(),
        frames=[to_frame(event, "session_id", row["session_id"])],
    )


async def advance_run(
    connection: AnyConnection, run_id: UUID, epoch: int | None, session_id: UUID, advance: Advance
) -> list[EventFrame]:
    """Commits one step of a run and returns its events.

    `epoch` None ends the run from outside, whoever holds it. A run that is cancelled or fails first ends the steps that it leaves behind
    without a result. Raises LeaseLost when the lease is gone or the run has ended.
    """
    if advance.ending is None or advance.ending.reason not in ("cancelled", "error"):
        return await _write(connection, run_id, epoch, session_id, advance)
    async with connection.transaction():
        # Locked first: a step that is being begun at this moment is seen afterwards, or is never begun.
        run = await connection.fetchrow(SQL["lock_unfinished_run"], run_id)
        if run is None:
            raise LeaseLost("the run has ended")
        started = await connection.fetch(SQL["find_started_steps"], run["tenant_id"], run_id)
        advances = [*(_left_behind(run_id, run["state"], step) for step in started), advance]
        return [frame for each in advances for frame in await _write(connection, run_id, epoch, session_id, each)]


def _left_behind(run_id: UUID, state: WorkingState, step: asyncpg.Record) -> Advance:
    """A step that was begun and never ended, as what it is now: a result that says that nobody knows."""
    error = outcome_unknown("the run was ended while the call was being made")
    message = {
        "id": step["message_id"],
        "role": "tool",
        "content": to_json({"error": error.model_dump()}),
        "tool_call_id": step["tool_call_id"],
        "tool_name": step["tool_name"],
        "metadata": {"outcome": "unknown"},
    }
    fields = {name: step[name] for name in ("n", "step", "message_id", "tool_name", "tool_call_id", "started_at")}
    journal = {**fields, "kind": "execute", "state": "unknown", "error": error.model_dump()}
    return Advance(state, None, message, journal, announce=False, events=(step_event("step.unknown", run_id, journal),))


def outcome_unknown(reason: str) -> ErrorInfo:
    """Why nobody knows what a call did, as the model, the user and the journal are told."""
    message = f"{reason}; it may or may not have taken effect, and it is not made again by itself"
    return ErrorInfo(code="outcome_unknown", message=message)


def step_event(kind: Literal["step.started", "step.unknown"], run_id: UUID, journal: dict[str, Any]) -> Event:
    """The event of a journal entry."""
    fields = {name: journal[name] for name in ("n", "step", "message_id", "tool_name", "tool_call_id")}
    return Event(kind, {"run_id": run_id, **fields})


async def resolve_step(
    connection: AnyConnection,
    *,
    tenant_id: UUID,
    session_id: UUID,
    run_id: UUID,
    n: int,
    decision: Decision,
    key_hash: bytes,
) -> list[EventFrame]:
    """Records a user's decision on a step whose outcome is unknown; no events when it isn't. The caller has opened the transaction."""
    await connection.fetchrow(SQL["lock_session"], tenant_id, session_id)
    rows = await connection.fetch(
        SQL["resolve_step"], tenant_id, run_id, n, decision.outcome, decision.result, key_hash
    )
    return to_frames(rows, "session_id", session_id)


async def _write(
    connection: AnyConnection, run_id: UUID, epoch: int | None, session_id: UUID, advance: Advance
) -> list[EventFrame]:
    events = _events(run_id, advance)
    ending = advance.ending
    rows = await connection.fetch(
        SQL["advance_run"],
        run_id,
        epoch,
        ending.state if ending else advance.state,
        advance.step,
        advance.message,
        advance.journal,
        to_json([{"type": event.type, "fields": event.fields} for event in events]),
        ending.reason if ending else None,
        ending.error.model_dump() if ending and ending.error else None,
        ending.usage if ending and ending.usage else advance.usage,
    )
    if not rows:
        raise LeaseLost("the run belongs to somebody else, or has ended")
    return to_frames(rows, "session_id", session_id)


def _events(run_id: UUID, advance: Advance) -> Sequence[Event]:
    ending = advance.ending
    if ending is not None:
        error = ending.error.model_dump() if ending.error else None
        fields = {
            "run_id": run_id,
            "state": ending.state,
            "reason": ending.reason,
            "error": error,
            "usage": ending.usage,
        }
        return [*advance.events, Event("run.finished", fields)]
    if advance.announce:
        state = Event("run.state", {"run_id": run_id, "state": advance.state, "step": advance.step})
        return [*advance.events, state]
    return advance.events
