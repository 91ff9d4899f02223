"""Leases on the real database: one owner at a time, and the dead are found."""

import asyncio
import os
import signal
import subprocess
import sys
from datetime import timedelta
from uuid import UUID

import pytest

from services.agent_runner.settings import MemorySettings
from services.agent_runner.store import RunStore
from shared.conversation import Advance, Ending
from shared.db.pool import Pool
from shared.errors import LeaseLost
from shared.ids import new_id
from shared.leases import LeaseKeeper, LeaseSettings, Presence
from shared.service import background
from tests.integration.spine.conversations import (
    LEASE,
    advance,
    cancel,
    claim,
    claim_next,
    claimed,
    contents,
    expire,
    finish,
    let_lapse,
    step,
    woken,
)
from tests.support.seed import post, seed_session
from tests.support.stack import REPOSITORY, clean_environment
from tests.support.waiting import eventually

# A process that is somebody: prints who, and lives until it is killed.
OWNER = """
import asyncio, os
from shared.leases import Presence
presence = Presence(os.environ["DATABASE_URL"], "test")
print(presence.owner, flush=True)
asyncio.run(presence.run())
"""


def store_of(pool: Pool, owner: UUID) -> RunStore:
    return RunStore(pool, owner, LeaseSettings(), MemorySettings())


async def test_of_ten_claims_at_once_one_wins(pool: Pool) -> None:
    run_id = await post(pool, await seed_session(pool), "hello")

    claims = await asyncio.gather(*(claim_next(pool) for _ in range(10)))

    assert [(run.run_id, run.epoch, run.attempts) for runs in claims for run in runs] == [(run_id, 1, 1)]


async def test_of_ten_claims_on_an_expired_lease_one_wins(pool: Pool) -> None:
    run_id = await post(pool, await seed_session(pool), "hello")
    await claimed(pool, run_id)
    await expire(pool, run_id)

    claims = await asyncio.gather(*(claim_next(pool) for _ in range(10)))

    assert [(run.run_id, run.epoch, run.attempts) for runs in claims for run in runs] == [(run_id, 2, 2)]


async def test_a_lease_that_stands_is_respected(pool: Pool) -> None:
    run_id = await post(pool, await seed_session(pool), "hello")
    first = await claimed(pool, run_id)
    left = await pool.fetchval("SELECT lease_until - now() FROM run WHERE id = $1", run_id)

    assert LEASE - timedelta(seconds=5) < left <= LEASE
    assert await claim(pool, run_id) is None
    await advance(pool, first, step(1))


@pytest.mark.parametrize(
    "change", [Advance("THINKING", 1), step(1), Advance(ending=Ending("completed"))], ids=["state", "step", "end"]
)
async def test_whoever_lost_the_lease_writes_nothing(pool: Pool, change: Advance) -> None:
    seeded = await seed_session(pool)
    run_id = await post(pool, seeded, "hello")
    first = await claimed(pool, run_id)
    await expire(pool, run_id)
    second = await claimed(pool, run_id)
    before = await contents(pool, seeded.session_id)

    with pytest.raises(LeaseLost):
        await advance(pool, first, change)

    assert await contents(pool, seeded.session_id) == before
    await finish(pool, second)


async def test_renewing_keeps_what_is_ours_and_names_what_is_not(pool: Pool) -> None:
    mine, theirs = new_id(), new_id()
    runs = [await post(pool, await seed_session(pool), "hello") for _ in range(4)]
    for run_id, owner in zip(runs, (mine, mine, mine, theirs), strict=True):
        await claimed(pool, run_id, owner)
    await expire(pool, runs[1])
    await claimed(pool, runs[1], theirs)
    await let_lapse(pool, runs[0])

    kept = set(await store_of(pool, mine).renew(runs))

    # An expired lease that nobody has taken is still ours.
    assert kept == {runs[0], runs[2]}
    assert await claim(pool, runs[0]) is None


async def test_a_released_run_is_woken_and_its_attempt_forgotten(pool: Pool) -> None:
    run_id = await post(pool, await seed_session(pool), "hello")
    await woken(pool)
    owner = new_id()
    run = await claimed(pool, run_id, owner)

    await store_of(pool, owner).release(run, timedelta(0), counts=False)

    assert await woken(pool) == [run_id]
    assert (await claimed(pool, run_id)).attempts == 1
    # What was released late, by an owner that has lost it, changes nothing.
    await store_of(pool, owner).release(run, timedelta(0), counts=False)
    assert await woken(pool) == []
    assert await claim(pool, run_id) is None


async def test_of_five_sweepers_at_once_one_queues_what_lapsed_and_all_leave_the_rest(pool: Pool) -> None:
    lapsed, standing = [await post(pool, await seed_session(pool), "hello") for _ in range(2)]
    for run_id in (lapsed, standing):
        await claimed(pool, run_id)
    await let_lapse(pool, lapsed)

    found = await asyncio.gather(*(store_of(pool, new_id()).requeue_abandoned([]) for _ in range(5)))

    assert [run_id for run_ids in found for run_id in run_ids] == [lapsed]
    assert [run.run_id for run in await claim_next(pool, 9)] == [lapsed]


async def test_a_process_queues_again_what_it_has_and_does_not_work_on(pool: Pool) -> None:
    """The database went away between the commit of a claim and its answer: the owner lives, and knows nothing of the run."""
    owner = new_id()
    dropped, held = [await post(pool, await seed_session(pool), "hello") for _ in range(2)]
    for run_id in (dropped, held):
        await claimed(pool, run_id, owner)
    assert await store_of(pool, owner).requeue_abandoned([held]) == [], "it may be about to begin"
    for run_id in (dropped, held):
        await age_lease(pool, run_id)

    assert await store_of(pool, owner).requeue_abandoned([held]) == [dropped]
    (run,) = await claim_next(pool, 10)
    assert (run.run_id, run.attempts) == (dropped, 1)


async def test_a_session_that_somebody_holds_is_passed_over(pool: Pool) -> None:
    held, free = [await seed_session(pool) for _ in range(2)]
    runs = [await post(pool, session, "hello") for session in (held, free)]
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT FROM chat_session WHERE id = $1 FOR UPDATE", held.session_id)
        assert [run.run_id for run in await asyncio.wait_for(claim_next(pool, 10), 5)] == [runs[1]]
    assert [run.run_id for run in await claim_next(pool, 10)] == [runs[0]]


async def test_a_run_that_is_abandoned_again_and_again_waits_longer_and_longer(pool: Pool) -> None:
    """Full jitter: a random part of 2^attempts seconds. The first time at once: a process died, the run is hardly the reason."""
    run_id = await post(pool, await seed_session(pool), "hello")
    delays: dict[int, list[float]] = {}
    for attempt in (1, 2, 3) * 8:
        await pool.execute("UPDATE run SET attempts = $2, not_before = now() WHERE id = $1", run_id, attempt - 1)
        await claimed(pool, run_id)
        await let_lapse(pool, run_id)
        assert await store_of(pool, new_id()).requeue_abandoned([]) == [run_id]
        query = "SELECT extract(epoch FROM not_before - now())::float8 FROM run WHERE id = $1"
        delays.setdefault(attempt, []).append(await pool.fetchval(query, run_id))

    assert max(delays[1]) <= 0
    assert 0.5 < max(delays[2]) <= 4
    assert 1 < max(delays[3]) <= 8  # eight draws that all fall below an eighth: once in 16 million


def start_owner(database_url: str) -> subprocess.Popen[str]:
    environment = {**clean_environment(), "DATABASE_URL": database_url}
    return subprocess.Popen(
        [sys.executable, "-c", OWNER], cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True
    )


async def age_lease(pool: Pool, run_id: UUID) -> None:
    """As if the lease had been taken some seconds ago: a fresh one is left alone, its owner may not have its lock yet."""
    await pool.execute("UPDATE run SET lease_until = lease_until - interval '10 seconds' WHERE id = $1", run_id)


async def test_a_fresh_lease_is_left_alone_and_an_older_one_of_an_absent_owner_is_not(pool: Pool) -> None:
    run_id = await post(pool, await seed_session(pool), "hello")
    await woken(pool)
    await claimed(pool, run_id)
    sweeper = store_of(pool, new_id())

    assert await sweeper.requeue_abandoned([]) == []
    await age_lease(pool, run_id)
    assert await sweeper.requeue_abandoned([]) == [run_id]


async def test_a_killed_owner_is_found_within_one_sweep(pool: Pool, database_url: str) -> None:
    run_id = await post(pool, await seed_session(pool), "hello")
    await woken(pool)
    process = start_owner(database_url)
    assert process.stdout is not None
    try:
        owner = UUID((await asyncio.to_thread(process.stdout.readline)).strip())
        await eventually(lambda: is_present(pool))
        await claimed(pool, run_id, owner)
        await age_lease(pool, run_id)
        sweeper = store_of(pool, new_id())

        assert await sweeper.requeue_abandoned([]) == [], "the owner lives"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        await eventually(lambda: is_gone(pool))
        assert await sweeper.requeue_abandoned([]) == [run_id]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert (await claimed(pool, run_id)).epoch == 2


LOCKS = """
SELECT count(*) FROM pg_locks
WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
KILL_PRESENCE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'test.presence' AND datname = current_database()
"""


async def is_present(pool: Pool) -> bool:
    return bool(await pool.fetchval(LOCKS) == 1)


async def is_gone(pool: Pool) -> bool:
    return not await is_present(pool)


async def test_presence_comes_back_after_its_connection_is_lost(pool: Pool, database_url: str) -> None:
    presence = Presence(database_url, "test")
    async with background([presence.run]):
        await eventually(lambda: is_present(pool))
        assert await pool.fetchval(KILL_PRESENCE)
        await eventually(lambda: is_gone(pool), every=0.005)
        await eventually(lambda: is_present(pool))
    await eventually(lambda: is_gone(pool))


async def test_the_keeper_cancels_the_job_whose_lease_is_gone(pool: Pool) -> None:
    """Two jobs of one process; one run is cancelled from outside."""
    owner = new_id()
    seeded = [await seed_session(pool) for _ in range(2)]
    runs = [await claimed(pool, await post(pool, session, "hello"), owner) for session in seeded]
    keeper = LeaseKeeper(store_of(pool, owner).renew, LeaseSettings(renew_every=0.05))
    ended: list[UUID] = []

    async def job(run_id: UUID) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(run_id)

    async with background([keeper.run]):
        held = [asyncio.ensure_future(keeper.hold(run.run_id, job(run.run_id))) for run in runs]
        await cancel(pool, runs[0].run_id, runs[0].session_id)
        await asyncio.wait_for(held[0], 20)  # returns normally: losing a lease is no error
        assert ended == [runs[0].run_id]
        assert not held[1].done()
        held[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await held[1]
    assert ended == [run.run_id for run in runs]


async def test_the_keeper_stops_jobs_before_a_lease_can_be_taken_when_the_database_is_away() -> None:
    async def renew(_ids: list[UUID]) -> list[UUID]:
        raise ConnectionRefusedError

    keeper = LeaseKeeper(renew, LeaseSettings(lease=0.3, renew_every=0.02))
    clock = asyncio.get_running_loop().time
    started = clock()

    async def job() -> None:
        await asyncio.Event().wait()

    async with background([keeper.run]):
        await asyncio.wait_for(keeper.hold(new_id(), job()), 20)
    assert clock() - started >= 0.19


async def _keep_all(ids: list[UUID]) -> list[UUID]:
    return ids


async def test_a_job_that_fails_raises() -> None:
    async def job() -> None:
        raise KeyError("no")

    with pytest.raises(KeyError, match="no"):
        await LeaseKeeper(_keep_all, LeaseSettings()).hold(new_id(), job())


async def test_a_lease_that_was_taken_away_and_came_back_ends_the_old_job_before_the_new_one() -> None:
    """Another sweeper thought this process dead, and this process claimed the row again."""
    keeper, job_id = LeaseKeeper(_keep_all, LeaseSettings()), new_id()
    log: list[str] = []

    async def job(name: str, gate: asyncio.Event) -> None:
        log.append(f"{name} begins")
        try:
            await gate.wait()
        finally:
            await asyncio.sleep(0)
            log.append(f"{name} ends")

    old = asyncio.ensure_future(keeper.hold(job_id, job("old", asyncio.Event())))
    await asyncio.sleep(0)
    gate = asyncio.Event()
    new = asyncio.ensure_future(keeper.hold(job_id, job("new", gate)))
    await asyncio.wait_for(old, 20)
    assert keeper.held() == [job_id]
    gate.set()
    await asyncio.wait_for(new, 20)

    assert log == ["old begins", "old ends", "new begins", "new ends"]
    assert keeper.held() == []


@pytest.mark.parametrize("is_negative", [True, False])
async def test_sweepers_see_owners_whose_hash_is_negative_too(pool: Pool, database_url: str, is_negative: bool) -> None:
    """A lock's number is signed where it is taken and unsigned where it is shown."""
    presence = Presence(database_url, "test")
    while (await pool.fetchval("SELECT hashtext($1)", str(presence.owner)) < 0) != is_negative:
        presence = Presence(database_url, "test")
    run_id = await post(pool, await seed_session(pool), "hello")
    await woken(pool)
    sweeper = store_of(pool, new_id())
    async with background([presence.run]):
        await eventually(lambda: is_present(pool))
        await claimed(pool, run_id, presence.owner)
        await age_lease(pool, run_id)
        assert await sweeper.requeue_abandoned([]) == []
    await eventually(lambda: is_gone(pool))
    assert await sweeper.requeue_abandoned([]) == [run_id]
