"""The order in which runs are claimed: fair over tenants, in order within a session, and cheap however long the queue is."""

import asyncio
from collections import Counter
from uuid import UUID

import pytest

from shared.db.pool import Pool
from shared.ids import new_id
from tests.integration.spine.conversations import cancel, claim, claim_next, claimed, finish
from tests.support.seed import SeededSession, post, seed_session


async def sessions_of_a_tenant(pool: Pool, count: int, weight: float = 1) -> list[SeededSession]:
    first = await seed_session(pool)
    await pool.execute("UPDATE tenant SET weight = $2 WHERE id = $1", first.tenant_id, weight)
    return [first, *[await seed_session(pool, tenant_id=first.tenant_id) for _ in range(count - 1)]]


async def queue(pool: Pool, sessions: list[SeededSession]) -> list[UUID]:
    return [await post(pool, session, "hello") for session in sessions]


async def test_a_backlog_of_one_tenant_doesnt_hold_up_another(pool: Pool) -> None:
    crowd = await sessions_of_a_tenant(pool, 40)
    await queue(pool, crowd)
    await claim_next(pool, 10)
    (lone,) = await queue(pool, await sessions_of_a_tenant(pool, 1))

    following = [run.run_id for _ in range(3) for run in await claim_next(pool)]

    assert lone in following


async def test_two_backlogs_are_served_in_turns_by_weight(pool: Pool) -> None:
    light, heavy = await sessions_of_a_tenant(pool, 30), await sessions_of_a_tenant(pool, 30, weight=3)
    await queue(pool, light)
    await queue(pool, heavy)

    served = Counter([run.tenant_id for _ in range(20) for run in await claim_next(pool)])

    assert 14 <= served[heavy[0].tenant_id] <= 16
    assert served.total() == 20


async def test_a_tenant_that_always_has_one_more_doesnt_starve_a_backlog(pool: Pool) -> None:
    await queue(pool, await sessions_of_a_tenant(pool, 20))
    busy = await sessions_of_a_tenant(pool, 1)
    served = Counter[UUID]()
    for _ in range(20):
        await queue(pool, busy)
        (run,) = await claim_next(pool)
        served[run.tenant_id] += 1
        await finish(pool, run)

    assert 8 <= served[busy[0].tenant_id] <= 12


async def test_within_a_session_one_at_a_time_in_order_of_acceptance(pool: Pool) -> None:
    session = await seed_session(pool)
    runs = [await post(pool, session, str(number)) for number in range(4)]
    order = []
    while claims := await claim_next(pool, 10):
        assert len(claims) == 1
        order.append(claims[0].run_id)
        assert await claim_next(pool, 10) == []
        await finish(pool, claims[0])

    assert order == runs


async def test_a_cancelled_run_in_the_middle_of_a_sessions_queue_gives_nobody_a_turn(pool: Pool) -> None:
    session = await seed_session(pool)
    runs = [await post(pool, session, str(number)) for number in range(3)]
    first = await claimed(pool, runs[0])

    await cancel(pool, runs[1], session.session_id)

    assert await claim_next(pool, 10) == []
    await finish(pool, first)
    assert [run.run_id for run in await claim_next(pool, 10)] == [runs[2]]


async def test_a_cancelled_first_run_gives_the_turn_on(pool: Pool) -> None:
    session = await seed_session(pool)
    runs = [await post(pool, session, str(number)) for number in range(2)]

    await cancel(pool, runs[0], session.session_id)

    assert [run.run_id for run in await claim_next(pool, 10)] == [runs[1]]


async def test_a_message_posted_as_the_run_before_it_ends_gets_its_turn(pool: Pool) -> None:
    """Post and end wait for the same session; whichever is second sees the other."""
    for _ in range(30):
        session = await seed_session(pool)
        run = await claimed(pool, await post(pool, session, "first"))
        _, second = await asyncio.gather(finish(pool, run), post(pool, session, "second"))
        assert [run.run_id for run in await claim_next(pool, 10)] == [second]


@pytest.mark.parametrize("ahead", ["ends", "is cancelled"])
async def test_the_end_of_a_run_and_the_cancel_of_the_next_never_wait_for_each_other(pool: Pool, ahead: str) -> None:
    """The end gives the next its turn while it holds the session, which the cancel of that next one wants as well."""
    for _ in range(60):
        session = await seed_session(pool)
        first, second = [await post(pool, session, word) for word in ("first", "second")]
        run = await claimed(pool, first)
        end = finish(pool, run) if ahead == "ends" else cancel(pool, first, session.session_id)
        await asyncio.gather(end, cancel(pool, second, session.session_id))
        assert (
            await pool.fetchval(
                "SELECT count(*) FROM run WHERE session_id = $1 AND status = 'finished'", session.session_id
            )
            == 2
        )


async def test_claims_at_once_share_the_work_and_repeat_none(pool: Pool) -> None:
    runs = await queue(pool, [await seed_session(pool) for _ in range(24)])

    claims = [run.run_id for batch in await asyncio.gather(*(claim_next(pool, 4) for _ in range(8))) for run in batch]

    assert len(claims) == len(set(claims))
    rest = [run.run_id for run in await claim_next(pool, 24)]
    assert sorted([*claims, *rest]) == sorted(runs)


async def test_tenants_that_have_enough_are_passed_over(pool: Pool) -> None:
    crowd, other = await sessions_of_a_tenant(pool, 5), await sessions_of_a_tenant(pool, 1)
    await queue(pool, crowd)
    (lone,) = await queue(pool, other)

    assert [run.run_id for run in await claim_next(pool, 10, without=[crowd[0].tenant_id])] == [lone]


async def test_a_run_that_waits_for_its_next_attempt_holds_nobody_up(pool: Pool) -> None:
    delayed, due = await queue(pool, [await seed_session(pool) for _ in range(2)])
    await pool.execute("UPDATE run SET not_before = now() + interval '1 hour' WHERE id = $1", delayed)

    assert await claim(pool, delayed) is None
    assert [run.run_id for run in await claim_next(pool, 10)] == [due]


async def test_a_claim_reads_the_front_of_a_long_queue_only(pool: Pool) -> None:
    """10,000 waiting runs of one tenant, all but one of them behind others of their session; a claim touches some pages, not thousands."""
    (session,) = await sessions_of_a_tenant(pool, 1)
    await pool.execute(
        """INSERT INTO run (tenant_id, id, session_id, seq)
           SELECT $1, gen_random_uuid(), $2, n FROM generate_series(1, 10000) n""",
        session.tenant_id,
        session.session_id,
    )
    await pool.execute("ANALYZE run")
    plan = await explain(pool, "status = 'queued' AND turn AND not_before <= now() ORDER BY fair_tag, id LIMIT 8")

    assert "run_claimable" in plan
    assert len(await claim_next(pool, 8)) == 1


async def explain(pool: Pool, condition: str) -> str:
    return str([tuple(row) for row in await pool.fetch(f"EXPLAIN SELECT id FROM run WHERE {condition}")])


async def test_ids_that_nobody_knows_are_nobodys(pool: Pool) -> None:
    assert await claim(pool, new_id()) is None
