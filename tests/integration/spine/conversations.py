"""What the tests of leases and conversations do with a run, in their words."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from services.agent_runner.settings import MemorySettings
from services.agent_runner.store import RunStore
from shared.contracts.hints import EventFrame
from shared.conversation import Advance, ClaimedRun, Ending, advance_run, claim_runs
from shared.db.pool import Pool
from shared.ids import new_id
from shared.leases import LeaseSettings

LEASE = timedelta(seconds=30)
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


async def claim(pool: Pool, run_id: UUID, owner: UUID | None = None) -> ClaimedRun | None:
    """Claims this very run by putting it first in the fair order, or nothing."""
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("UPDATE run SET fair_tag = -1 WHERE id = $1", run_id)
        runs = await claim_runs(connection, owner or new_id(), LEASE, 1)
        if [run.run_id for run in runs] != [run_id]:
            await transaction.rollback()
            return None
        await transaction.commit()
        return runs[0]


async def claim_next(
    pool: Pool, limit: int = 1, without: Sequence[UUID] = (), owner: UUID | None = None
) -> list[ClaimedRun]:
    """Claims what is next, as runners do."""
    async with pool.acquire() as connection:
        return await claim_runs(connection, owner or new_id(), LEASE, limit, without)


async def claimed(pool: Pool, run_id: UUID, owner: UUID | None = None) -> ClaimedRun:
    run = await claim(pool, run_id, owner)
    assert run is not None
    return run


async def advance(pool: Pool, run: ClaimedRun, change: Advance) -> list[EventFrame]:
    async with pool.acquire() as connection:
        return await advance_run(connection, run.run_id, run.epoch, run.session_id, change)


async def finish(pool: Pool, run: ClaimedRun) -> list[EventFrame]:
    return await advance(pool, run, Advance(message=assistant(), ending=Ending("completed", USAGE)))


async def cancel(pool: Pool, run_id: UUID, session_id: UUID) -> list[EventFrame]:
    """Ends a run from outside, as the gateway does."""
    async with pool.acquire() as connection:
        return await advance_run(connection, run_id, None, session_id, Advance(ending=Ending("cancelled")))


async def expire(pool: Pool, run_id: UUID) -> None:
    """As if the lease had run out and a sweeper had seen it."""
    await let_lapse(pool, run_id)
    store = RunStore(pool, new_id(), LeaseSettings(max_backoff=0), MemorySettings())
    assert run_id in await store.requeue_abandoned([])


async def let_lapse(pool: Pool, run_id: UUID) -> None:
    """As if the lease had run out."""
    await pool.execute("UPDATE run SET lease_until = now() - interval '1 second' WHERE id = $1", run_id)


def assistant(text: str = "hm") -> dict[str, Any]:
    return {"id": new_id(), "role": "assistant", "content": text}


def think(n: int, message: dict[str, Any]) -> dict[str, Any]:
    return {
        "n": n,
        "step": n,
        "kind": "think",
        "state": "done",
        "message_id": message["id"],
        "started_at": datetime.now(UTC),
    }


def step(n: int) -> Advance:
    """A commit of a think step that goes on with a tool."""
    message = assistant()
    return Advance("EXECUTING", n, message, think(n, message), USAGE)


async def contents(pool: Pool, session_id: UUID) -> tuple[Any, ...]:
    """Everything that a session holds, to see whether anything was written."""
    return tuple(
        [
            [tuple(row) for row in await pool.fetch(query, session_id)]
            for query in (
                "SELECT to_jsonb(s) FROM chat_session s WHERE id = $1",
                "SELECT to_jsonb(r) FROM run r WHERE session_id = $1 ORDER BY seq",
                "SELECT to_jsonb(m) FROM chat_message m WHERE session_id = $1 ORDER BY seq",
                "SELECT seq, payload::text FROM session_event WHERE session_id = $1 ORDER BY seq",
                "SELECT to_jsonb(s) FROM run_step s JOIN run r ON r.id = s.run_id WHERE r.session_id = $1 ORDER BY n",
                "SELECT subject_id FROM outbox WHERE subject_id IN (SELECT id FROM run WHERE session_id = $1) ORDER BY id",
            )
        ]
    )


async def woken(pool: Pool) -> list[UUID]:
    """Takes the wake-ups out of the outbox."""
    rows = await pool.fetch(
        "WITH d AS (DELETE FROM outbox RETURNING id, subject_id) SELECT subject_id FROM d ORDER BY id"
    )
    return [row["subject_id"] for row in rows]
