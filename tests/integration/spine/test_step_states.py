"""Steps that are begun before they have a result: what becomes of them whichever way their run goes on or ends."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from shared.conversation import Advance, ClaimedRun, Ending, step_event
from shared.db.pool import Pool
from shared.errors import ErrorInfo, LeaseLost
from shared.ids import new_id
from tests.integration.spine.conversations import advance, cancel, claimed, step
from tests.support.seed import SeededSession, post, seed_session


async def begun(pool: Pool) -> tuple[SeededSession, ClaimedRun, dict[str, Any]]:
    """A run in the middle of a call that must not be made twice."""
    seeded = await seed_session(pool)
    run = await claimed(pool, await post(pool, seeded, "book it"))
    await advance(pool, run, step(1))
    journal = entry("started")
    await advance(pool, run, begin(run, journal))
    return seeded, run, journal


def entry(state: str, message_id: UUID | None = None, n: int = 2) -> dict[str, Any]:
    return {
        "n": n,
        "step": 1,
        "kind": "execute",
        "state": state,
        "message_id": message_id or new_id(),
        "tool_name": "ledger",
        "tool_call_id": "call_0",
        "arguments": {"amount": 5},
        "started_at": datetime.now(UTC),
    }


def begin(run: ClaimedRun, journal: dict[str, Any]) -> Advance:
    event = step_event("step.started", run.run_id, journal)
    return Advance("EXECUTING", 1, None, journal, announce=False, events=(event,))


def result_of(journal: dict[str, Any], state: str = "done") -> Advance:
    message = {"id": journal["message_id"], "role": "tool", "content": "booked", "tool_call_id": "call_0"}
    return Advance("EXECUTING", 1, message, {**journal, "state": state})


async def read_step(pool: Pool, run: ClaimedRun, n: int = 2) -> asyncpg.Record:
    row = await pool.fetchrow("SELECT * FROM run_step WHERE run_id = $1 AND n = $2", run.run_id, n)
    assert row is not None
    return row


async def events(pool: Pool, seeded: SeededSession) -> list[tuple[int, str, dict[str, Any]]]:
    rows = await pool.fetch("SELECT * FROM session_event WHERE session_id = $1 ORDER BY seq", seeded.session_id)
    return [(row["seq"], row["type"], json.loads(row["payload"])) for row in rows]


async def test_a_begun_step_has_no_end_until_its_result_is_written(pool: Pool) -> None:
    seeded, run, journal = await begun(pool)
    row = await read_step(pool, run)
    assert (row["state"], row["finished_at"], row["arguments"]) == ("started", None, {"amount": 5})
    await advance(pool, run, result_of(journal))
    row = await read_step(pool, run)
    assert (row["state"], row["message_id"], row["arguments"]) == ("done", journal["message_id"], {"amount": 5})
    assert row["finished_at"] >= row["started_at"]
    log = await events(pool, seeded)
    assert [seq for seq, _, _ in log] == list(range(1, len(log) + 1))


@pytest.mark.parametrize("state", ["done", "started"])
async def test_no_result_is_written_twice(pool: Pool, state: str) -> None:
    _, run, journal = await begun(pool)
    await advance(pool, run, result_of(journal))
    again = entry(state)
    message = {"id": again["message_id"], "role": "tool", "content": "booked twice", "tool_call_id": "call_0"}
    with pytest.raises(asyncpg.UniqueViolationError):
        await advance(pool, run, Advance("EXECUTING", 1, message, again))
    assert await pool.fetchval("SELECT count(*) FROM chat_message WHERE content = 'booked twice'") == 0
    assert (await read_step(pool, run))["message_id"] == journal["message_id"]


async def test_a_step_is_not_begun_twice(pool: Pool) -> None:
    _, run, journal = await begun(pool)
    with pytest.raises(asyncpg.UniqueViolationError):
        await advance(pool, run, begin(run, entry("started")))
    assert (await read_step(pool, run))["message_id"] == journal["message_id"]


@pytest.mark.parametrize("how", ["cancelled by its user", "given up by its runner"])
async def test_a_run_that_ends_in_a_begun_step_leaves_it_unknown(pool: Pool, how: str) -> None:
    seeded, run, journal = await begun(pool)
    if how == "cancelled by its user":
        frames = await cancel(pool, run.run_id, seeded.session_id)
    else:
        error = ErrorInfo(code="attempts_exhausted", message="no progress")
        frames = await advance(pool, run, Advance(ending=Ending("error", None, error)))

    assert [frame.type for frame in frames] == ["message.created", "step.unknown", "run.finished"]
    row = await read_step(pool, run)
    assert (row["state"], row["message_id"], row["error"]["code"]) == (
        "unknown", journal["message_id"], "outcome_unknown",
    )  # fmt: skip
    message = await pool.fetchrow("SELECT * FROM chat_message WHERE id = $1", journal["message_id"])
    assert message is not None
    assert (message["role"], message["tool_call_id"], message["metadata"]) == ("tool", "call_0", {"outcome": "unknown"})
    assert json.loads(message["content"])["error"]["code"] == "outcome_unknown"
    log = await events(pool, seeded)
    assert [seq for seq, _, _ in log] == list(range(1, len(log) + 1))
    assert await pool.fetchval("SELECT status FROM run WHERE id = $1", run.run_id) == "finished"


async def test_a_run_that_was_handed_back_is_cancelled_with_its_begun_step(pool: Pool) -> None:
    seeded, run, _ = await begun(pool)
    await pool.execute(
        "UPDATE run SET status = 'queued', lease_owner = NULL, lease_until = NULL WHERE id = $1", run.run_id
    )
    frames = await cancel(pool, run.run_id, seeded.session_id)
    assert [frame.type for frame in frames] == ["message.created", "step.unknown", "run.finished"]


async def test_whoever_is_first_a_begun_step_never_stays_behind(pool: Pool) -> None:
    """A cancel and the begin of a step at the same moment: the step is begun and then unknown, or never begun."""
    outcomes = set()
    for _ in range(20):
        seeded = await seed_session(pool)
        run = await claimed(pool, await post(pool, seeded, "book it"))
        await advance(pool, run, step(1))
        begin_it = advance(pool, run, begin(run, entry("started")))
        begin_result, _ = await asyncio.gather(
            begin_it, cancel(pool, run.run_id, seeded.session_id), return_exceptions=True
        )
        assert not isinstance(begin_result, BaseException) or isinstance(begin_result, LeaseLost)
        state = await pool.fetchval("SELECT state FROM run_step WHERE run_id = $1 AND n = 2", run.run_id)
        assert state == (None if isinstance(begin_result, LeaseLost) else "unknown")
        assert await pool.fetchval("SELECT reason FROM run WHERE id = $1", run.run_id) == "cancelled"
        outcomes.add(state)
    assert outcomes <= {None, "unknown"}


async def test_the_previous_release_writes_steps_as_before(pool: Pool) -> None:
    """Its statement names no finished_at and knows two states."""
    _, run, _ = await begun(pool)
    await pool.execute(
        "INSERT INTO run_step (tenant_id, run_id, n, step, kind, state, message_id, lease_epoch, started_at)"
        " VALUES ($1, $2, 3, 1, 'execute', 'failed', $3, 1, now())",
        run.tenant_id, run.run_id, new_id(),
    )  # fmt: skip
    assert (await read_step(pool, run, 3))["finished_at"] is not None
