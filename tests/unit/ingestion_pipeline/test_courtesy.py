"""Documents make room on a busy machine, and lose nothing on an idle one."""

import asyncio

import pytest

from services.ingestion.courtesy import Courtesy


@pytest.mark.parametrize(
    ("factor", "busy", "somebody", "worked", "paused"),
    [
        (3, True, True, 0.5, 1.5),
        (3, True, True, 60, 5.0),
        (3, False, True, 60, 0),
        (3, True, False, 60, 0),
        (0, True, True, 60, 0),
    ],
)
async def test_a_pause_follows_the_work_while_the_machine_is_busy(
    monkeypatch: pytest.MonkeyPatch, factor: float, busy: bool, somebody: bool, worked: float, paused: float
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def somebody_waits() -> bool:
        return somebody

    monkeypatch.setattr(asyncio, "sleep", sleep)
    await Courtesy(factor, somebody_waits, is_busy=lambda: busy).pause(worked)
    assert sum(pauses) == paused
