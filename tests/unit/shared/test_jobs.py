"""Job slots: never more jobs than slots, and an end in order."""

import asyncio
from functools import partial

import pytest
from structlog.testing import capture_logs

from shared.jobs import Draining, JobSlots


async def test_a_slot_is_free_again_when_its_job_ends_however_it_ends() -> None:
    slots = JobSlots(1)
    outcomes: list[str] = []

    async def job(outcome: str) -> None:
        outcomes.append(outcome)
        if outcome == "fails":
            raise KeyError(outcome)
        if outcome == "is cancelled":
            raise asyncio.CancelledError

    with capture_logs() as logs:
        for outcome in ("ends", "fails", "is cancelled", "ends again"):
            await slots.take(wait=5)
            slots.start(partial(job, outcome))
        await slots.take(wait=5)

    assert outcomes == ["ends", "fails", "is cancelled", "ends again"]
    assert [line["event"] for line in logs] == ["job.crashed"]


async def test_a_full_house_is_refused_in_time() -> None:
    slots, gate = JobSlots(1), asyncio.Event()
    await slots.take(wait=5)
    slots.start(partial(_wait, gate))
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await slots.take(wait=0.01)
    gate.set()
    await slots.take(wait=5)


async def test_a_taker_that_is_cancelled_as_it_gets_its_slot_leaves_the_slot_free() -> None:
    """A broker hiccup cancels handlers; at whatever moment, no slot may be lost by it."""
    for turns in range(6):
        slots, gate = JobSlots(1), asyncio.Event()
        await slots.take(wait=5)
        slots.start(partial(_wait, gate))
        waiting = asyncio.ensure_future(slots.take(wait=20))
        await asyncio.sleep(0)
        gate.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        if waiting.cancel():
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await slots.take(wait=1)


async def test_draining_waits_for_jobs_and_takes_nothing_new() -> None:
    slots, gate, ended = JobSlots(2), asyncio.Event(), asyncio.Event()

    async def job() -> None:
        await gate.wait()
        ended.set()

    await slots.take(wait=1)
    slots.start(job)
    draining = asyncio.ensure_future(slots.drain(grace=20))
    await asyncio.sleep(0)
    with pytest.raises(Draining):
        await slots.take(wait=1)
    assert not draining.done()
    gate.set()
    await draining
    assert ended.is_set()


async def test_whoever_waits_for_a_slot_when_draining_begins_is_sent_away() -> None:
    slots, gate = JobSlots(1), asyncio.Event()
    await slots.take(wait=1)
    slots.start(partial(_wait, gate))
    waiting = asyncio.ensure_future(slots.take(wait=20))
    await asyncio.sleep(0)
    draining = asyncio.ensure_future(slots.drain(grace=20))
    await asyncio.sleep(0)
    gate.set()
    with pytest.raises(Draining):
        await waiting
    await draining


async def test_jobs_that_outlast_the_grace_are_cancelled_and_may_hand_back() -> None:
    slots, handed_back = JobSlots(1), asyncio.Event()

    async def job() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            handed_back.set()

    await slots.take(wait=1)
    slots.start(job)
    await asyncio.sleep(0)
    await slots.drain(grace=0.01)
    assert handed_back.is_set()


async def _wait(gate: asyncio.Event) -> None:
    await gate.wait()
