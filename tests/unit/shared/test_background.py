"""Loops in the background: they end with the block, and a loop that fails ends the block."""

import asyncio

import pytest

from shared.service import background


async def test_loops_end_with_the_block() -> None:
    ended: list[str] = []

    async def loop() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("loop")

    async with background([loop, loop]):
        await asyncio.sleep(0)
    assert ended == ["loop", "loop"]


async def test_a_loop_that_fails_ends_the_block_with_its_error() -> None:
    async def loop() -> None:
        raise KeyError("broken")

    with pytest.raises(ExceptionGroup) as failed:
        async with background([loop]):
            await asyncio.Event().wait()
    assert isinstance(failed.value.exceptions[0], KeyError)


async def test_a_loop_that_takes_a_cancellation_for_a_lost_connection_ends_all_the_same() -> None:
    """asyncpg turns a cancellation that meets a dead connection into an error of its own, which such loops survive."""
    survived: list[str] = []

    async def loop() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if survived:
                    raise
                survived.append("once")

    async with asyncio.timeout(20), background([loop]):
        await asyncio.sleep(0)
    assert survived == ["once"]
