"""The statements that move a conversation on: the only writers of run, chat_message, run_step and session_event.

Each is one round trip, because these five statements are most of what a run costs. They take row locks in the order run, session; a
posted message takes the session's only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

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


async def claim_run(connection: AnyConnection, run_id: UUID, owner: UUID, lease: timedelta) -> ClaimedRun | None:
    """Takes a run, or None when somebody else has it, an earlier one of its session goes first, or it has ended."""
    row = await connection.fetchrow(SQL["claim_run"], run_id, owner, lease)
    if row is None:
        return None
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

    `epoch` None ends the run from outside, whoever holds it. Raises LeaseLost when the lease is gone or the run has ended.
    """
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
        return [Event("run.finished", fields)]
    if advance.announce:
        return [Event("run.state", {"run_id": run_id, "state": advance.state, "step": advance.step})]
    return []
