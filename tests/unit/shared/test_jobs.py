"""Jobs: never more than slots, no tenant holds them all, and an end in order."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from shared.ids import new_id
from shared.jobs import Jobs, JobSettings
from shared.service import background
from tests.support.waiting import eventually

ALICE, BOB = new_id(), new_id()


@dataclass(frozen=True, eq=False)
class Row:
    tenant_id: UUID
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    error: Exception | None = None


class Queue:
    """Rows that wait, as a database would hand them out; and what became of them."""

    def __init__(self, *rows: Row) -> None:
        self.waiting = list(rows)
        self.asked: list[int] = []
        self.working: list[Row] = []
        self.done: list[Row] = []
        self.handed_back: list[Row] = []
        self.trouble = 0
        self.claim_gate: asyncio.Event | None = None

    async def claim(self, limit: int, without: Sequence[UUID]) -> list[Row]:
        self.asked.append(limit)
        if self.trouble:
            self.trouble -= 1
            raise ConnectionRefusedError
        rows = [row for row in self.waiting if row.tenant_id not in without][:limit]
        for row in rows:
            self.waiting.remove(row)
        if self.claim_gate is not None:
            await self.claim_gate.wait()
        return rows

    async def work(self, row: Row) -> None:
        self.working.append(row)
        try:
            await row.gate.wait()
            if row.error:
                raise row.error
            self.done.append(row)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            self.handed_back.append(row)
            raise
        finally:
            self.working.remove(row)

    async def works_on(self, count: int) -> None:
        async def probe() -> bool:
            return len(self.working) == count

        await eventually(probe, every=0.005)


@asynccontextmanager
async def running(queue: Queue, **settings: float) -> AsyncIterator[Jobs[Row]]:
    jobs = Jobs(queue.claim, queue.work, JobSettings.model_validate({"poll_every": 30, **settings}), (OSError,))
    async with background([jobs.run]):
        jobs.nudge()
        yield jobs


async def test_a_slot_is_free_again_when_its_job_ends_however_it_ends() -> None:
    rows = [Row(ALICE), Row(ALICE, error=KeyError("no")), Row(ALICE), Row(ALICE)]
    queue = Queue(*rows)
    with capture_logs() as logs:
        async with running(queue, slots=1, tenant_share=1):
            for row in rows:
                await eventually(partial(_is_working, queue, row), every=0.005)
                row.gate.set()
            await queue.works_on(0)

    assert queue.done == [rows[0], rows[2], rows[3]]
    assert [line["event"] for line in logs] == ["job.crashed"]


async def _is_working(queue: Queue, row: Row) -> bool:
    return queue.working == [row]


async def test_never_more_jobs_than_slots() -> None:
    queue = Queue(*(Row(new_id()) for _ in range(20)))
    async with running(queue, slots=5, batch=8):
        await queue.works_on(5)
        assert max(queue.asked) <= 3


async def test_a_tenant_leaves_slots_to_others_who_get_them_at_once() -> None:
    queue = Queue(*(Row(ALICE) for _ in range(100)))
    async with running(queue, slots=16, tenant_share=0.75, batch=8) as jobs:
        await eventually(lambda: _has_asked_in_vain(queue), every=0.005)
        assert 12 <= len(queue.working) < 16
        queue.waiting.append(Row(BOB))
        before = len(queue.working)
        jobs.nudge()
        await queue.works_on(before + 1)
        assert queue.working[-1].tenant_id == BOB


async def _has_asked_in_vain(queue: Queue) -> bool:
    asked = len(queue.asked)
    await asyncio.sleep(0.02)
    return len(queue.asked) == asked and len(queue.working) >= 12


async def test_work_is_found_without_a_wake_up() -> None:
    queue = Queue()
    async with running(queue, slots=2, poll_every=0.02):
        queue.waiting.append(Row(ALICE))
        await queue.works_on(1)


async def test_a_database_that_is_away_is_asked_again() -> None:
    queue = Queue(Row(ALICE))
    queue.trouble = 3
    with capture_logs() as logs:
        async with running(queue, slots=2, poll_every=0.02):
            await queue.works_on(1)
    assert [line["event"] for line in logs] == ["claim.failed"] * 3


async def test_a_wake_up_waits_while_the_house_is_full() -> None:
    row = Row(ALICE)
    queue = Queue(row)
    async with running(queue, slots=1) as jobs:
        await queue.works_on(1)
        waiting = asyncio.ensure_future(jobs.wait_for_room(20))
        await jobs.wait_for_room(0.01)  # gives up in time
        assert not waiting.done()
        row.gate.set()
        await asyncio.wait_for(waiting, 20)


async def test_draining_lets_jobs_end_and_takes_nothing_new() -> None:
    row = Row(ALICE)
    queue = Queue(row)
    async with running(queue, slots=4, drain=20) as jobs:
        await queue.works_on(1)
        draining = asyncio.ensure_future(jobs.drain())
        await asyncio.sleep(0)
        queue.waiting.append(Row(BOB))
        jobs.nudge()
        await jobs.wait_for_room(20)
        assert jobs.stopping
        row.gate.set()
        await asyncio.wait_for(draining, 20)
    assert queue.done == [row]
    assert len(queue.waiting) == 1


async def test_what_is_left_after_the_grace_is_cancelled_and_hands_back() -> None:
    queue = Queue(Row(ALICE), Row(BOB))
    async with running(queue, slots=4, drain=0.01) as jobs:
        await queue.works_on(2)
        await asyncio.wait_for(jobs.drain(), 20)
        assert len(queue.handed_back) == 2


@pytest.mark.parametrize("turns", range(4))
async def test_what_is_being_claimed_when_the_end_comes_is_handed_back_too(turns: int) -> None:
    """Otherwise it would wait for a sweeper to find its owner dead."""
    queue = Queue(Row(ALICE))
    queue.claim_gate = asyncio.Event()
    async with running(queue, slots=4, drain=0.01) as jobs:
        await eventually(lambda: _is_claiming(queue), every=0.005)
        draining = asyncio.ensure_future(jobs.drain())
        for _ in range(turns):
            await asyncio.sleep(0)
        queue.claim_gate.set()
        await asyncio.wait_for(draining, 20)
        assert len(queue.handed_back) == 1


async def _is_claiming(queue: Queue) -> bool:
    return bool(queue.asked)
