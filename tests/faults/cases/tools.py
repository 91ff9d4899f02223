"""Calls of tools that go wrong: cases 51, 53 and 54."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import psutil

from tests.faults.bed import Bed
from tests.faults.cases.runners import RUNNERS, epoch_of
from tests.faults.catalogue import case
from tests.faults.clock import lasts
from tests.faults.conversation import Conversation, conversation, new_wish
from tests.faults.model import Wish
from tests.faults.tally import Tally
from tests.support.scripted_replies import ScriptedCall

LEASE = {"CHATMIND_LEASE__LEASE": "4", "CHATMIND_LEASE__RENEW_EVERY": "1"}


async def codes_of(talk: Conversation, run_id: str) -> list[str | None]:
    """The error codes of a run's calls, None for those that went well."""
    steps = await talk.client.items(f"/api/runs/{run_id}/steps")
    return [step["error"] and step["error"]["code"] for step in steps if step["kind"] == "execute"]


async def expect_codes(talk: Conversation, wish: Wish, expected: Sequence[str | None]) -> str:
    """The run completes, and its calls end like that; its id."""
    run_id = await talk.say(wish)
    await talk.expect(run_id, wish)
    codes = await codes_of(talk, run_id)
    talk.tally.require(codes == list(expected), f"the calls ended with {codes}, not {expected}")
    return run_id


@case(51, "Unknown tool, invalid arguments, arguments cut inside a character, rounds without end", quick=True)
async def wrong_calls(bed: Bed, rng: Random, trials: int) -> Tally:
    """The model is told, whole characters arrive, and the rounds are limited."""
    tally = Tally()
    wrong: list[tuple[str, Any]] = [
        ("NoSuchTool", {}),
        ("ledger_once", {"amount": 1}),  # which this agent does not have
        ("ledger_keyed", '{"amount": '),
        ("ledger_keyed", "[1]"),
        ("ledger_keyed", {"amount": "much"}),
        ("ledger_keyed", {}),
    ]
    refusals = ["unknown_tool"] * 2 + ["invalid_arguments"] * 4
    note = "für 漢字 \U0001f642"
    for trial in range(trials):
        async with conversation(rng.choice(bed.clients), tally, tools=["ledger_keyed"]) as talk:
            calls = [ScriptedCall(name=name, arguments=arguments) for name, arguments in wrong]
            await expect_codes(talk, new_wish(talk.client, calls=[calls]), refusals)
            tally.require(not bed.ledger.of_run(talk.accepted[-1]), "a refused call was made")
            split = {
                "tool_calls": [{"name": "ledger_keyed", "arguments": {"amount": 1, "note": note}}],
                "split_bytes": 1,
            }
            run_id = await expect_codes(talk, new_wish(talk.client, fault=split), [None])
            notes = [entry.body["note"] for entry in bed.ledger.of_run(run_id)]
            tally.require(notes == [note], f"the tool was told {notes}")
        once = ScriptedCall(name="ledger_keyed", arguments={"amount": trial})
        async with conversation(rng.choice(bed.clients), tally, tools=["ledger_keyed"], max_steps=3) as talk:
            wish = new_wish(talk.client, calls=[[once]] * 10)
            run_id = await talk.say(wish)
            await talk.expect(run_id, wish, reason="step_limit")
            booked = len(bed.ledger.of_run(run_id))
            tally.require(booked <= 3, f"{booked} calls in 3 rounds")
            answer = new_wish(talk.client)
            await talk.expect(await talk.say(answer), answer)
    return tally


@case(53, "A tool that is down, dies, answers 502, never answers, sends 50 MB")
async def broken_tools(bed: Bed, rng: Random, trials: int) -> Tally:
    """An error that the model is told; sessions beside it go on, and waiting costs no CPU."""
    tally = Tally()
    failures: list[tuple[str, str, str]] = [
        ("unreachable", "", "tool_unreachable"),
        ("hasty_read", "cut", "tool_failed"),
        ("hasty_read", "status:502", "tool_failed"),
        ("hasty_read", "gate:never", "tool_timeout"),
        ("hasty_read", "large:50", "result_too_large"),
    ]
    for _ in range(trials):
        client = rng.choice(bed.clients)
        async with conversation(client, tally, tools=["unreachable", "hasty_read"]) as talk:
            for name, note, code in failures:
                call = ScriptedCall(name=name, arguments={"note": note} if note else {})
                await expect_codes(talk, new_wish(client, calls=[[call]]), [code])
            # All at once, beside somebody else.
            calls = [ScriptedCall(name=name, arguments={"note": note}) for name, note, _ in failures]
            everything = new_wish(client, calls=[calls])
            async with conversation(rng.choice(bed.clients), tally) as neighbour:
                run_id = await talk.say(everything)
                wish = new_wish(neighbour.client)
                await neighbour.expect(await neighbour.say(wish), wish, within=10)
                await talk.expect(run_id, everything)
        tally.note(cpu_while_waiting=await _cpu_while_waiting(bed, rng, tally))
    return tally


async def _cpu_while_waiting(bed: Bed, rng: Random, tally: Tally) -> float:
    """The share of a CPU that a runner takes while a tool does not answer for 5 s."""
    async with conversation(rng.choice(bed.clients), tally, tools=["ledger_read"]) as talk:
        call = ScriptedCall(name="ledger_read", arguments={"amount": 1, "note": "gate:slow"})
        wish = new_wish(talk.client, calls=[[call]])
        run_id = await talk.say(wish)
        await bed.ledger.someone_at("slow")
        process = psutil.Process(bed.services[await bed.holder_of(run_id)].pid)
        before = process.cpu_times()
        await lasts(5)
        after = process.cpu_times()
        share = (after.user + after.system - before.user - before.system) / 5
        tally.require(share < 0.3, f"waiting for a tool takes {share:.0%} of a CPU")
        bed.ledger.open("slow")
        await talk.expect(run_id, wish)
    return round(share, 3)


@case(54, "A tool that takes longer than the lease")
async def longer_than_the_lease(bed: Bed, rng: Random, trials: int) -> Tally:
    """The lease is renewed, and the tool is called once (12 s with a lease of 4 s)."""
    tally = Tally()
    await asyncio.gather(*(bed.restart(name, **LEASE) for name in RUNNERS))
    for amount in range(trials):
        tools = ["ledger_read", "ledger_keyed", "ledger_once"]
        async with conversation(rng.choice(bed.clients), tally, tools=tools) as talk:
            calls = [ScriptedCall(name=name, arguments={"amount": amount, "note": "delay:12"}) for name in tools]
            run_id = await expect_codes(talk, new_wish(talk.client, calls=[calls]), [None] * 3)
            epoch = await epoch_of(bed, run_id)
            booked = len(bed.ledger.of_run(run_id))
            tally.require(epoch == 1, f"the run was claimed {epoch} times")
            tally.require(
                booked == 2 and not bed.ledger.repeats, f"{booked} entries, {len(bed.ledger.repeats)} repeats"
            )
    return tally
