"""The view of everything that nobody is responsible for: it names what is forgotten and is silent about what merely waits."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from shared.db.pool import Pool
from shared.ids import new_id
from shared.leases import PRESENCE_CLASS, Presence
from shared.service import background
from shared.stuck import count_stuck, report_stuck_for_ever
from tests.integration.spine.conversations import advance, cancel, claim_next, step
from tests.support.seed import SeededSession, post, seed_session
from tests.support.waiting import eventually

LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = $1::integer::oid"


@pytest.fixture
async def owner(pool: Pool, database_url: str) -> AsyncIterator[UUID]:
    """A worker that lives."""
    presence = Presence(database_url, "test")

    async def is_present() -> bool:
        return bool(await pool.fetchval(LOCKS, PRESENCE_CLASS))

    async with background([presence.run]):
        await eventually(is_present)
        yield presence.owner


async def stuck(pool: Pool) -> list[tuple[Any, ...]]:
    """Kind, id and reason of all rows."""
    rows = await pool.fetch("SELECT kind, id, reason FROM stuck ORDER BY since, id")
    return [tuple(row) for row in rows]


async def let_time_pass(pool: Pool, seconds: int) -> None:
    """As if everything had happened so many seconds earlier. Leases keep standing, as their owners renew them."""
    shift = f"interval '{seconds} seconds'"
    await pool.execute(f"UPDATE run SET created_at = created_at - {shift}, not_before = not_before - {shift},"
                       f" started_at = started_at - {shift}, finished_at = finished_at - {shift}")  # fmt: skip
    await pool.execute(f"UPDATE document SET created_at = created_at - {shift}, not_before = not_before - {shift},"
                       f" updated_at = updated_at - {shift}")  # fmt: skip
    await pool.execute(f"UPDATE outbox SET created_at = created_at - {shift}")


async def forget_wake_ups(pool: Pool) -> None:
    await pool.execute("DELETE FROM outbox")


async def waiting_run(pool: Pool, seeded: SeededSession | None = None) -> UUID:
    run_id = await post(pool, seeded or await seed_session(pool), "hello")
    await forget_wake_ups(pool)
    return run_id


async def waiting_document(pool: Pool, seeded: SeededSession) -> UUID:
    document_id = new_id()
    await pool.execute(
        "INSERT INTO document (tenant_id, id, knowledge_base_id, filename, media_type, size, sha256)"
        " VALUES ($1, $2, $3, 'a.md', 'text/markdown', 1, $4)",
        seeded.tenant_id, document_id, seeded.knowledge_base_id, document_id.bytes,
    )  # fmt: skip
    return document_id


async def lease_document(pool: Pool, document_id: UUID, owner: UUID) -> None:
    await pool.execute(
        "UPDATE document SET state = 'embedding', lease_owner = $2, lease_until = now() + interval '30 s' WHERE id = $1",
        document_id,
        owner,
    )


async def test_what_has_just_come_is_nobodys_fault(pool: Pool) -> None:
    seeded = await seed_session(pool)
    await post(pool, seeded, "hello")
    await waiting_document(pool, seeded)

    assert await stuck(pool) == []


async def test_a_run_and_its_wake_up_without_any_worker(pool: Pool) -> None:
    run_id = await post(pool, await seed_session(pool), "hello")
    await let_time_pass(pool, 20)

    assert sorted(await stuck(pool)) == [("run", run_id, "no_worker"), ("wake_up", run_id, "not_sent")]
    assert await count_stuck(pool) == {"run no_worker": 1, "wake_up not_sent": 1}


async def test_a_run_that_an_idle_worker_does_not_take(pool: Pool, owner: UUID) -> None:
    run_id = await waiting_run(pool)
    await let_time_pass(pool, 20)

    assert await stuck(pool) == [("run", run_id, "unclaimed")]
    assert (await claim_next(pool, owner=owner))[0].run_id == run_id
    assert await stuck(pool) == []


async def test_runs_that_wait_while_every_slot_is_taken_are_not_stuck(pool: Pool, owner: UUID) -> None:
    seeded = await seed_session(pool)
    for _ in range(3):
        await waiting_run(pool, seeded)
    other = await waiting_run(pool)
    await claim_next(pool, owner=owner)
    await let_time_pass(pool, 600)

    assert await stuck(pool) == [], "one works, one waits for a slot, two wait for their session"
    assert await pool.fetchval("SELECT status FROM run WHERE id = $1", other) == "queued"


async def test_a_run_that_later_ones_overtake(pool: Pool, owner: UUID) -> None:
    seeded = await seed_session(pool)
    run_id = await waiting_run(pool, seeded)
    await pool.execute("UPDATE run SET not_before = now() + interval '1 hour' WHERE id = $1", run_id)
    second = await second_session(pool, seeded)
    await let_time_pass(pool, 3700)
    later = await waiting_run(pool, second)
    # Somebody else holds the row all the time.
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT FROM run WHERE id = $1 FOR UPDATE", run_id)
        assert [run.run_id for run in await claim_next(pool, owner=owner)] == [later]

    assert await stuck(pool) == [("run", run_id, "passed_over")]


async def second_session(pool: Pool, seeded: SeededSession) -> SeededSession:
    """Another session of the same agent."""
    second = SeededSession(seeded.tenant_id, seeded.knowledge_base_id, seeded.agent_id, new_id())
    await pool.execute(
        "INSERT INTO chat_session (tenant_id, id, agent_id) VALUES ($1, $2, $3)",
        second.tenant_id, second.session_id, second.agent_id,
    )  # fmt: skip
    return second


async def test_a_run_that_was_not_given_its_turn(pool: Pool, owner: UUID) -> None:
    run_id = await waiting_run(pool)
    await pool.execute("UPDATE run SET turn = false WHERE id = $1", run_id)
    await let_time_pass(pool, 20)

    assert await claim_next(pool, owner=owner) == []
    assert await stuck(pool) == [("run", run_id, "turn_lost")]


async def test_a_run_waits_from_the_end_of_the_one_before(pool: Pool, owner: UUID) -> None:
    seeded = await seed_session(pool)
    first = await waiting_run(pool, seeded)
    await claim_next(pool, owner=owner)
    await waiting_run(pool, seeded)
    await let_time_pass(pool, 600)
    await cancel(pool, first, seeded.session_id)
    await forget_wake_ups(pool)

    assert await stuck(pool) == []
    await let_time_pass(pool, 20)
    assert [reason for _, _, reason in await stuck(pool)] == ["unclaimed"]


async def test_leases_of_the_living_stand_and_those_of_the_dead_do_not(pool: Pool, owner: UUID) -> None:
    runs = [await waiting_run(pool) for _ in range(2)]
    (mine,) = await claim_next(pool, owner=owner)
    (theirs,) = await claim_next(pool, owner=new_id())
    assert {mine.run_id, theirs.run_id} == set(runs)
    assert await stuck(pool) == [], "a sweeper is about to notice"

    await pool.execute("UPDATE run SET lease_until = now() + interval '14 s'")
    assert await stuck(pool) == [("run", theirs.run_id, "owner_gone")]
    await pool.execute("UPDATE run SET lease_until = now() - interval '11 s'")
    assert set(await stuck(pool)) == {("run", run_id, "lease_expired") for run_id in runs}


async def test_documents(pool: Pool, owner: UUID) -> None:
    seeded = await seed_session(pool)
    waiting, working, lost = [await waiting_document(pool, seeded) for _ in range(3)]
    await let_time_pass(pool, 20)
    assert [row[2] for row in await stuck(pool)] == ["unclaimed"] * 3

    await lease_document(pool, working, owner)
    assert await stuck(pool) == [], "one is worked on: the others wait for a slot"
    await lease_document(pool, lost, new_id())
    await pool.execute("UPDATE document SET lease_until = now() + interval '14 s' WHERE id = $1", lost)
    assert await stuck(pool) == [("document", lost, "owner_gone")]
    await pool.execute(
        "UPDATE document SET state = 'ready', lease_owner = NULL, lease_until = NULL WHERE id = $1", lost
    )

    later = await waiting_document(pool, seeded)
    await lease_document(pool, later, owner)
    assert await stuck(pool) == [("document", waiting, "passed_over")]


async def test_a_session_that_works_without_a_run(pool: Pool, owner: UUID) -> None:
    seeded = await seed_session(pool)
    await waiting_run(pool, seeded)
    (run,) = await claim_next(pool, owner=owner)
    await advance(pool, run, step(1))
    assert await stuck(pool) == []
    await cancel(pool, run.run_id, seeded.session_id)
    assert await stuck(pool) == []

    await pool.execute("UPDATE chat_session SET state = 'EXECUTING' WHERE id = $1", seeded.session_id)
    assert await stuck(pool) == [("session", seeded.session_id, "no_run")]
    assert await count_stuck(pool) == {}, "frequent counts leave the large table out"


async def test_a_call_whose_run_has_ended_without_its_outcome(pool: Pool, owner: UUID) -> None:
    seeded = await seed_session(pool)
    await waiting_run(pool, seeded)
    (run,) = await claim_next(pool, owner=owner)
    await advance(pool, run, step(1))
    begin = "UPDATE run_step SET state = 'started', finished_at = NULL WHERE run_id = $1"
    await pool.execute(begin, run.run_id)
    assert await stuck(pool) == [], "it is being made"
    await pool.execute("UPDATE run_step SET state = 'done', finished_at = now() WHERE run_id = $1", run.run_id)
    await cancel(pool, run.run_id, seeded.session_id)
    assert await stuck(pool) == []

    await pool.execute(begin, run.run_id)
    assert await stuck(pool) == [("step", run.run_id, "run_finished")]


async def test_an_outbox_row_of_any_form_is_shown(pool: Pool) -> None:
    await pool.execute(
        "INSERT INTO outbox (kind, subject_id, body) VALUES ('NewKind', $1, '{\"tenant_id\": 1}')", new_id()
    )
    await let_time_pass(pool, 20)

    assert [tuple(row) for row in await pool.fetch("SELECT kind, tenant_id, state, reason FROM stuck")] == [
        ("wake_up", None, "NewKind", "not_sent")
    ]


async def test_the_log_tells(pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[str] = []

    async def is_told() -> bool:
        told.append(capsys.readouterr().out)
        return "stuck.found" in "".join(told)

    async with background([lambda: report_stuck_for_ever(pool, every=0.02)]):
        await asyncio.sleep(0.1)
        assert not await is_told(), "nothing is stuck"
        await waiting_run(pool)
        await let_time_pass(pool, 20)
        await eventually(is_told)
    assert "run no_worker" in "".join(told)
