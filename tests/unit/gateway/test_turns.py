"""Turns at a thing: order, independence, and an end of waiting."""

import asyncio

import pytest

from services.gateway.refusals import Refusal
from services.gateway.turns import Turns


async def test_one_thing_is_had_by_so_many_and_another_by_others() -> None:
    turns = Turns(at_once=2, timeout=5)
    entered: list[str] = []
    leave = asyncio.Event()

    async def use(thing: str, name: str) -> None:
        async with turns.at(thing):
            entered.append(name)
            await leave.wait()

    async with asyncio.TaskGroup() as group:
        for name in ("a1", "a2", "a3"):
            group.create_task(use("a", name))
        group.create_task(use("b", "b1"))
        await asyncio.sleep(0)
        assert entered == ["a1", "a2", "b1"]
        leave.set()
    assert entered == ["a1", "a2", "b1", "a3"]


async def test_waiting_ends_and_leaves_the_line_in_order() -> None:
    turns = Turns(at_once=1, timeout=0.01)
    async with turns.at("a"):
        with pytest.raises(Refusal) as refused:
            async with turns.at("a"):
                pytest.fail("there is one turn")
    assert (refused.value.code, refused.value.retry_after) == ("unavailable", 2)
    async with turns.at("a"):
        pass


async def test_an_error_gives_the_turn_back() -> None:
    turns = Turns(at_once=1, timeout=0.01)
    for _ in range(2):
        with pytest.raises(ValueError, match="mine"):
            async with turns.at("a"):
                raise ValueError("mine")
