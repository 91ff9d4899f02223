"""Runners die, stop and come back: cases 1 to 6, 13, 14 and 17."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from random import Random

from tests.faults.bed import Bed
from tests.faults.catalogue import case
from tests.faults.client import TenantClient
from tests.faults.clock import lasts
from tests.faults.conversation import Conversation, conversation, new_wish
from tests.faults.load import background_load
from tests.faults.model import Wish
from tests.faults.tally import NotHere, Tally
from tests.support.scripted_replies import ScriptedCall

RUNNERS = ("runner-0", "runner-1")


@asynccontextmanager
async def dies_at(
    bed: Bed, client: TenantClient, tally: Tally, failpoint: str, wish: Wish, tools: list[str] | None = None
) -> AsyncIterator[tuple[Conversation, str]]:
    """A run whose only runner dies at a failpoint and is started again, with a second one; its conversation and its id."""
    for name in RUNNERS:
        await bed.kill(name)
    await bed.start(RUNNERS[0], CHATMIND_FAILPOINT=f"{failpoint}=kill", CHATMIND_JOBS__POLL_EVERY="30")
    await bed.ready(RUNNERS[0])
    async with conversation(client, tally, tools=tools) as talk:
        run_id = await talk.say(wish)
        await bed.died(RUNNERS[0])
        died_at = bed.now()
        for name in RUNNERS:
            await bed.start(name)
        yield talk, run_id
        tally.resume_seconds.append(await bed.resumed_after(run_id, died_at))
        tally.recovered += 1


async def epoch_of(bed: Bed, run_id: str) -> int:
    """How often a run was claimed."""
    epoch: int = await bed.fetchval("SELECT lease_epoch FROM run WHERE id = $1::text::uuid", run_id)
    return epoch


@case(1, "SIGKILL a runner after delivery, before the claim", trials=2)
async def before_the_claim(bed: Bed, rng: Random, trials: int) -> Tally:
    """Another runner takes the run, and the attempt is not counted twice."""
    tally = Tally()
    for _ in range(trials):
        client = rng.choice(bed.clients)
        wish = new_wish(client)
        async with dies_at(bed, client, tally, "wake_up_taken", wish) as (talk, run_id):
            await talk.expect(run_id, wish)
            epoch = await epoch_of(bed, run_id)
            tally.require(epoch == 1, f"claimed {epoch} times")
    return tally


@case(2, "SIGKILL a runner after the claim's commit", trials=2, quick=True)
async def after_the_claim(bed: Bed, rng: Random, trials: int) -> Tally:
    """The wake-up that comes again does nothing until the lease ends; then the run is resumed once."""
    tally = Tally()
    for _ in range(trials):
        client = rng.choice(bed.clients)
        wish = new_wish(client)
        async with dies_at(bed, client, tally, "run_claimed", wish) as (talk, run_id):
            await talk.expect(run_id, wish)
            epoch = await epoch_of(bed, run_id)
            tally.require(epoch == 2, f"claimed {epoch} times")
            tally.require(bed.model.asked[wish.id, 0] == 1, f"the model was asked {bed.model.asked[wish.id, 0]} times")
    return tally


@case(3, "SIGKILL a runner in the middle of the model's stream", trials=3, quick=True)
async def mid_stream(bed: Bed, rng: Random, trials: int) -> Tally:
    """The step is asked for again, and the client gets the text once."""
    tally = Tally()
    for trial in range(trials):
        client = rng.choice(bed.clients)
        async with conversation(client, tally) as talk:
            gate = f"middle-{trial}"
            wish = new_wish(client, gate=gate, gate_after=rng.randint(1, 4), chunk_chars=10)
            run_id = await talk.say(wish)
            await bed.model.someone_at(gate)
            victim = await bed.holder_of(run_id)
            killed_at = bed.now()
            await bed.kill(victim)
            bed.model.open(gate)
            await bed.start(victim)
            await talk.expect(run_id, wish)
            tally.resume_seconds.append(await bed.resumed_after(run_id, killed_at))
            tally.recovered += 1
            tally.require(bed.model.asked[wish.id, 0] == 2, f"the model was asked {bed.model.asked[wish.id, 0]} times")
    return tally


@case(4, "SIGKILL a runner after the model's reply is committed, before the tool", trials=2)
async def before_the_tool(bed: Bed, rng: Random, trials: int) -> Tally:
    """The model is not asked for that reply again."""
    tally = Tally()
    for _ in range(trials):
        client = rng.choice(bed.clients)
        wish = new_wish(client, calls=[[ScriptedCall(name="CurrentTimeTool")]])
        async with dies_at(bed, client, tally, "after_reply_before_tool", wish) as (talk, run_id):
            await talk.expect(run_id, wish)
            asked = [bed.model.asked[wish.id, step] for step in range(2)]
            tally.require(asked == [1, 1], f"the model was asked {asked} times")
    return tally


@case(5, "SIGKILL a runner after a keyed tool returned, before the step's commit", trials=2, quick=True)
async def after_a_keyed_tool(bed: Bed, rng: Random, trials: int) -> Tally:
    """The call goes out again with its key, and the ledger holds one row."""
    tally = Tally()
    await need_tool(bed, "ledger_keyed")
    for amount in range(trials):
        client = rng.choice(bed.clients)
        wish = new_wish(client, calls=[[ScriptedCall(name="ledger_keyed", arguments={"amount": amount})]])
        tools = ["ledger_keyed"]
        async with dies_at(bed, client, tally, "after_tool_before_commit", wish, tools=tools) as (talk, run_id):
            await talk.expect(run_id, wish)
            tally.require(len(bed.ledger.of_run(run_id)) == 1, f"the ledger holds {bed.ledger.of_run(run_id)}")
            tally.require(len(bed.ledger.repeats) == amount + 1, f"{len(bed.ledger.repeats)} repeats")
    return tally


@case(6, "SIGKILL a runner after a once tool returned, before the step's commit", trials=2, quick=True)
async def after_a_once_tool(bed: Bed, rng: Random, trials: int) -> Tally:
    """The ledger holds one row, the step is unknown and says so to the user; the call does not go out again."""
    tally = Tally()
    await need_tool(bed, "ledger_once")
    for amount in range(trials):
        client = rng.choice(bed.clients)
        wish = new_wish(client, calls=[[ScriptedCall(name="ledger_once", arguments={"amount": amount})]])
        tools = ["ledger_once"]
        async with dies_at(bed, client, tally, "after_tool_before_commit", wish, tools=tools) as (talk, run_id):
            await talk.expect(run_id, wish)
            tally.require(len(bed.ledger.of_run(run_id)) == 1, f"the ledger holds {bed.ledger.of_run(run_id)}")
            steps = await talk.client.items(f"/api/runs/{run_id}/steps")
            states = [step["state"] for step in steps if step["kind"] == "execute"]
            tally.require(states == ["unknown"], f"the steps are {states}")
    return tally


@case(13, "All runners down for 60 s", seconds=300)
async def nobody_runs(bed: Bed, rng: Random, trials: int) -> Tally:
    """All that was queued meanwhile is done, in order per session."""
    tally = Tally()
    for _ in range(trials):
        for name in RUNNERS:
            await bed.kill(name)
        wishes = []
        async with conversations(bed, tally, 10) as talks:
            for talk in talks:
                wishes += [(talk, wish, await talk.say(wish)) for wish in (new_wish(talk.client) for _ in range(3))]
            await lasts(60)
            for name in RUNNERS:
                await bed.start(name)
            for talk, wish, run_id in wishes:
                await talk.expect(run_id, wish)
    return tally


@asynccontextmanager
async def conversations(bed: Bed, tally: Tally, count: int) -> AsyncIterator[list[Conversation]]:
    """So many conversations of all tenants."""
    async with AsyncExitStack() as stack:
        clients = [bed.clients[number % len(bed.clients)] for number in range(count)]
        yield [await stack.enter_async_context(conversation(client, tally)) for client in clients]


@case(14, "SIGTERM a runner in a turn of 60 s", seconds=240)
async def stopped_in_a_long_turn(bed: Bed, rng: Random, trials: int) -> Tally:
    """It exits within its grace time, the turn goes on elsewhere at most 3 s later, and the attempt is not counted."""
    tally = Tally()
    for trial in range(trials):
        client = rng.choice(bed.clients)
        async with conversation(client, tally) as talk:
            slow = {"text": "x" * 120, "chunk_chars": 1, "delay_ms": 500}
            wish = new_wish(client, fault=slow, gate=f"second-{trial}")
            run_id = await talk.say(wish)
            name = await bed.holder_of(run_id)
            began = time.monotonic()
            code = await bed.terminate(name)
            ended_at, took = bed.now(), time.monotonic() - began
            tally.require(code == 0 and took < 32, f"exit code {code} after {took:.1f} s")
            await bed.model.someone_at(f"second-{trial}")
            attempts = await bed.fetchval("SELECT attempts FROM run WHERE id = $1::text::uuid", run_id)
            tally.require(attempts == 1, f"{attempts} attempts are counted")
            bed.model.open(f"second-{trial}")
            await talk.expect(run_id, wish)
            claims = [
                e.data["created_at"] for e in talk.events if e.type == "run.state" and e.data["state"] == "PLANNING"
            ]
            later = _seconds_between(ended_at.isoformat(), claims[-1])
            tally.require(
                len(claims) == 2 and later <= 3, f"{len(claims)} claims, the last {later:.1f} s after the exit"
            )
            tally.note(exit_seconds=round(took, 1), continued_seconds=round(later, 2))
            tally.recovered += 1
            await bed.start(name)
    return tally


@case(17, "A run that kills its runner every time", seconds=240)
async def deadly_run(bed: Bed, rng: Random, trials: int) -> Tally:
    """It fails alone with attempts_exhausted after 5 attempts, as if its memory were never enough; what runs beside it completes."""
    tally = Tally()
    async with background_load(bed, rng, tally, sessions=4, documents=False):
        for trial in range(trials):
            client = rng.choice(bed.clients)
            async with conversation(client, tally) as talk:
                wish = new_wish(client, gate=f"deadly-{trial}", gate_after=0)
                run_id = await talk.say(wish)
                kills = 0
                while talk.end_of(run_id) is None and kills < 9:
                    try:
                        victim = await bed.holder_of(run_id, within=30)
                    except AssertionError:
                        break
                    await bed.kill(victim)
                    await bed.start(victim)
                    kills += 1
                end = await talk.ended(run_id)
                code = end and end["error"] and end["error"]["code"]
                tally.require(code == "attempts_exhausted" and kills == 5, f"{kills} kills, then {end}")
                tally.ok += 1
    return tally


async def need_tool(bed: Bed, name: str) -> None:
    """Raises NotHere when the system has no such tool."""
    items = (await bed.clients[0].call("GET", "/api/tools")).json()["items"]
    if name not in {item["name"] for item in items}:
        raise NotHere(f"the system has no tool {name}")


def _seconds_between(earlier: str, later: str) -> float:
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()
