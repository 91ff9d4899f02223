"""Conversations on the real database: contiguous events, one run at a time, one end a run."""

import asyncio
import json
from typing import Any
from uuid import UUID

import pytest

from shared.conversation import Advance, Ending
from shared.db.pool import Pool
from shared.errors import ErrorInfo, LeaseLost
from tests.integration.spine.conversations import (
    advance,
    assistant,
    cancel,
    claim,
    claimed,
    contents,
    finish,
    step,
    woken,
)
from tests.support.seed import post, seed_session


async def events(pool: Pool, session_id: UUID) -> list[tuple[int, str, dict[str, Any]]]:
    rows = await pool.fetch(
        "SELECT seq, type, payload FROM session_event WHERE session_id = $1 ORDER BY seq", session_id
    )
    return [(row["seq"], row["type"], json.loads(row["payload"])) for row in rows]


async def test_a_run_from_message_to_end(pool: Pool) -> None:
    seeded = await seed_session(pool)
    run_id = await post(pool, seeded, "hello")
    run = await claimed(pool, run_id)
    frames = [
        *run.frames,
        *await advance(pool, run, Advance("THINKING", 1)),
        *await advance(pool, run, step(1)),
        *await finish(pool, run),
    ]

    stored = await events(pool, seeded.session_id)
    assert [(seq, kind) for seq, kind, _ in stored] == [
        (1, "message.created"),
        (2, "run.queued"),
        (3, "run.state"),
        (4, "run.state"),
        (5, "message.created"),
        (6, "run.state"),
        (7, "message.created"),
        (8, "run.finished"),
    ]
    # What is sent live is what a replay reads.
    assert [frame.seq for frame in frames] == [3, 4, 5, 6, 7, 8]
    for frame, (seq, kind, payload) in zip(frames, stored[2:], strict=True):
        sent = json.loads(frame.data)
        assert (sent.pop("seq"), sent.pop("type"), sent.pop("session_id")) == (seq, kind, str(seeded.session_id))
        assert sent.pop("created_at")
        assert sent == payload
    assert stored[-1][2]["reason"] == "completed"
    row = await pool.fetchrow("SELECT status, state, reason, lease_owner, step, usage FROM run WHERE id = $1", run_id)
    assert row is not None
    assert tuple(row)[:5] == ("finished", "FINISHED", "completed", None, 1)
    assert await pool.fetchval("SELECT state FROM chat_session WHERE id = $1", seeded.session_id) == "FINISHED"


async def test_twenty_writers_at_once_leave_contiguous_events(pool: Pool) -> None:
    seeded = await seed_session(pool)
    run = await claimed(pool, await post(pool, seeded, "first"))

    async def advance_ten_times() -> None:
        for n in range(1, 11):
            await advance(pool, run, step(n))

    await asyncio.gather(advance_ten_times(), *(post(pool, seeded, f"message {n}") for n in range(20)))

    stored = await events(pool, seeded.session_id)
    assert [seq for seq, _, _ in stored] == list(range(1, 3 + 1 + 10 * 2 + 20 * 2))
    messages = [payload["message"]["seq"] for _, kind, payload in stored if kind == "message.created"]
    assert messages == list(range(1, 32))
    assert await pool.fetchval("SELECT last_seq FROM chat_session WHERE id = $1", seeded.session_id) == len(stored)
    positions = [payload["position"] for _, kind, payload in stored if kind == "run.queued"]
    assert positions == list(range(21))


async def test_runs_of_a_session_go_one_after_the_other_in_order(pool: Pool) -> None:
    seeded = await seed_session(pool)
    runs = [await post(pool, seeded, f"message {n}") for n in range(3)]
    await woken(pool)

    for n, run_id in enumerate(runs):
        outcomes = await asyncio.gather(*(claim(pool, candidate) for candidate in reversed(runs)))
        won = [run for run in outcomes if run is not None]
        assert [run.run_id for run in won] == [run_id], "only the first unfinished run can be had"
        await finish(pool, won[0])
        assert await woken(pool) == runs[n + 1 : n + 2], "the end of a run wakes the next"


async def test_sessions_do_not_wait_for_each_other(pool: Pool) -> None:
    runs = [await post(pool, await seed_session(pool), "hello") for _ in range(5)]
    assert all(await asyncio.gather(*(claim(pool, run_id) for run_id in runs)))


async def test_a_message_posted_while_a_run_ends_is_woken(pool: Pool) -> None:
    """Whichever comes first: the post sees a finished run and wakes its own, or the end sees the new run."""
    for _ in range(20):
        seeded = await seed_session(pool)
        run = await claimed(pool, await post(pool, seeded, "first"))
        await woken(pool)
        _, second = await asyncio.gather(finish(pool, run), post(pool, seeded, "second"))
        assert second in await woken(pool)
        assert await claim(pool, second) is not None


async def test_a_run_cancelled_from_outside_is_lost_to_its_runner(pool: Pool) -> None:
    seeded = await seed_session(pool)
    run = await claimed(pool, await post(pool, seeded, "hello"))
    next_run = await post(pool, seeded, "next")
    await woken(pool)

    frames = await cancel(pool, run.run_id, seeded.session_id)

    assert [(frame.type, json.loads(frame.data)["reason"]) for frame in frames] == [("run.finished", "cancelled")]
    row = await pool.fetchrow("SELECT lease_epoch, lease_owner, status, state FROM run WHERE id = $1", run.run_id)
    assert row is not None
    assert tuple(row) == (run.epoch + 1, None, "finished", "FINISHED")
    assert await woken(pool) == [next_run]
    before = await contents(pool, seeded.session_id)
    with pytest.raises(LeaseLost):
        await finish(pool, run)
    assert await contents(pool, seeded.session_id) == before


async def test_a_queued_run_is_cancelled_and_the_running_one_goes_on(pool: Pool) -> None:
    seeded = await seed_session(pool)
    run = await claimed(pool, await post(pool, seeded, "hello"))
    waiting = await post(pool, seeded, "next")

    await cancel(pool, waiting, seeded.session_id)

    assert await claim(pool, waiting) is None
    assert await pool.fetchval("SELECT state FROM chat_session WHERE id = $1", seeded.session_id) == "PLANNING"
    await finish(pool, run)


async def test_of_many_ends_at_once_one_is_written(pool: Pool) -> None:
    seeded = await seed_session(pool)
    run = await claimed(pool, await post(pool, seeded, "hello"))

    async def end(attempt: int) -> str:
        try:
            await (cancel(pool, run.run_id, run.session_id) if attempt % 2 else finish(pool, run))
        except LeaseLost:
            return "lost"
        return "won"

    outcomes = await asyncio.gather(*(end(attempt) for attempt in range(10)))

    assert outcomes.count("won") == 1
    stored = await events(pool, seeded.session_id)
    assert [kind for _, kind, _ in stored].count("run.finished") == 1
    assert [seq for seq, _, _ in stored] == list(range(1, len(stored) + 1))


async def test_an_error_is_kept_and_shown(pool: Pool) -> None:
    seeded = await seed_session(pool)
    run = await claimed(pool, await post(pool, seeded, "hello"))
    info = ErrorInfo(code="llm_unavailable", message="the model does not answer")

    (frame,) = await advance(pool, run, Advance(ending=Ending("error", None, info)))

    shown = json.loads(frame.data)
    assert (shown["state"], shown["reason"], shown["error"]) == ("ERROR", "error", info.model_dump())
    assert await pool.fetchval("SELECT error FROM run WHERE id = $1", run.run_id) == info.model_dump()


async def test_a_committed_step_forgets_failed_attempts_and_is_taken_once(pool: Pool) -> None:
    seeded = await seed_session(pool)
    run = await claimed(pool, await post(pool, seeded, "hello"))
    assert run.attempts == 1

    await advance(pool, run, step(1))

    assert await pool.fetchval("SELECT attempts FROM run WHERE id = $1", run.run_id) == 0
    before = await contents(pool, seeded.session_id)
    with pytest.raises(Exception, match="run_step_pkey"):
        await advance(pool, run, step(1))
    assert await contents(pool, seeded.session_id) == before


async def test_text_that_is_hard_to_store_comes_back_as_it_was(pool: Pool) -> None:
    seeded = await seed_session(pool)
    text = '好 "quotes" \\backslash\\ \u2028 \U0001f600 </script> line\nbreak'
    run = await claimed(pool, await post(pool, seeded, text))

    frames = await advance(pool, run, Advance("EXECUTING", 1, assistant(text)))

    assert json.loads(frames[0].data)["message"]["content"] == text
    assert await pool.fetch("SELECT content FROM chat_message WHERE content = $1", text) != []
    assert "\n" not in frames[0].data, "an event is one line"
