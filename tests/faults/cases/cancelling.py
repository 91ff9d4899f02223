"""A run is cancelled at every point of its life: case 62."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.faults.bed import Bed
from tests.faults.cases.models import expect_next, hung_up
from tests.faults.catalogue import case
from tests.faults.clock import lasts
from tests.faults.conversation import Conversation, conversation, new_wish
from tests.faults.model import Wish
from tests.faults.tally import Tally
from tests.support.scripted_replies import ScriptedCall
from tests.support.sse import open_stream
from tests.support.waiting import eventually

CANCEL_SECONDS = 2.0
EFFECTS = ("read", "keyed", "once")


@dataclass
class Scene:
    """A conversation and the text of it that was streamed, by message; `name` differs from scene to scene."""

    bed: Bed
    talk: Conversation
    rng: Random
    name: str
    streamed: dict[str, str] = field(default_factory=dict)

    def wish(self, **fields: Any) -> Wish:
        return new_wish(self.talk.client, chunk_chars=8, **fields)

    async def cancel(self, run_id: str, times: int = 1) -> None:
        """Cancels a run, at different gateways at once when more than one time; it ends in time."""
        began = time.monotonic()
        path = f"/api/runs/{run_id}/cancel"
        calls = (self.talk.client.call("POST", path, gateway=(self.rng.randrange(2) + n) % 2) for n in range(times))
        for answer in await asyncio.gather(*calls):
            self.talk.tally.require(answer.status_code == 202, f"{self.name}: {answer.status_code} {answer.text[:200]}")
        await self.talk.ended(run_id)
        took = time.monotonic() - began
        self.talk.tally.resume_seconds.append(took)
        self.talk.tally.require(took <= CANCEL_SECONDS, f"{self.name}: the end came after {took:.1f} s")

    async def expect_end(self, run_id: str, *reasons: str) -> None:
        """The run ended for one of these reasons."""
        end = await self.talk.ended(run_id)
        if end is not None and end["reason"] in reasons:
            self.talk.tally.ok += 1
        elif end is not None:
            self.talk.tally.surprise(f"{self.name}: ended with {end['reason']} {end['error']}")

    async def expect_hung_up(self, wish: Wish) -> None:
        self.talk.tally.require(
            await hung_up(self.bed, wish, within=CANCEL_SECONDS), f"{self.name}: the model is still heard"
        )


async def queued(scene: Scene) -> None:
    """Behind another run of the session, which is not touched."""
    first, second = scene.wish(gate=scene.name), scene.wish()
    running = await scene.talk.say(first)
    await scene.bed.model.someone_at(scene.name)
    waiting = await scene.talk.say(second)
    await scene.cancel(waiting)
    await scene.expect_end(waiting, "cancelled")
    scene.bed.model.open(scene.name)
    await scene.talk.expect(running, first)
    scene.talk.tally.require(not scene.bed.model.asked[second.id, 0], "a cancelled run asked the model")


async def before_the_model(scene: Scene) -> None:
    """The model was asked and has not answered."""
    await _at_gate(scene, after=0)


async def first_delta(scene: Scene) -> None:
    """One piece of text is there."""
    await _at_gate(scene, after=1)


async def _at_gate(scene: Scene, after: int) -> None:
    wish = scene.wish(gate=scene.name, gate_after=after)
    run_id = await scene.talk.say(wish)
    await scene.bed.model.someone_at(scene.name)
    await scene.cancel(run_id)
    await scene.expect_end(run_id, "cancelled")
    await scene.expect_hung_up(wish)


async def mid_delta(scene: Scene) -> None:
    """While text streams."""
    await _streaming(scene, times=1)


async def twice(scene: Scene) -> None:
    """The same, by several requests at once, and once more."""
    run_id = await _streaming(scene, times=4)
    again = await scene.talk.client.call("POST", f"/api/runs/{run_id}/cancel")
    scene.talk.tally.require(again.status_code == 202, f"a later cancel: {again.status_code}")


async def _streaming(scene: Scene, times: int) -> str:
    wish = scene.wish(repeat=40, delay_ms=20)
    run_id = await scene.talk.say(wish)
    least = scene.rng.randint(2, 60)
    known = set(scene.streamed)

    async def flows() -> bool:
        return any(len(text) >= least for text in map(scene.streamed.get, scene.streamed.keys() - known) if text)

    await eventually(flows)
    await scene.cancel(run_id, times)
    await scene.expect_end(run_id, "cancelled")
    await scene.expect_hung_up(wish)
    stored = scene.talk.messages(run_id)[-1]
    scene.talk.tally.require(
        stored["role"] == "assistant" and wish.answer.startswith(stored["content"]) and len(stored["content"]) >= least,
        f"{scene.name}: {stored['role']} said {stored['content']!r:.200}",
    )
    return run_id


async def in_a_tool(scene: Scene) -> None:
    """While a tool of each class works; what a once tool did is unknown then."""
    for effect in EFFECTS:
        gate = f"{scene.name}-{effect}"
        arguments = {"amount": 1, "note": f"gate:{gate}"}
        wish = scene.wish(calls=[[ScriptedCall(name=f"ledger_{effect}", arguments=arguments)]])
        run_id = await scene.talk.say(wish)
        await scene.bed.ledger.someone_at(gate)
        await scene.cancel(run_id)
        await scene.expect_end(run_id, "cancelled")
        scene.bed.ledger.open(gate)
        steps = await scene.talk.client.items(f"/api/runs/{run_id}/steps")
        states = [step["state"] for step in steps if step["kind"] == "execute"]
        if effect == "once":
            scene.talk.tally.require(states == ["unknown"], f"{scene.name}: a once call is {states}")
        scene.talk.tally.require("started" not in states, f"{scene.name}: a call of a run that has ended is {states}")
        await expect_next(scene.talk)


async def between_steps(scene: Scene) -> None:
    """As soon as a tool's result is there."""
    wish = scene.wish(calls=[[ScriptedCall(name="CurrentTimeTool")]] * 6, delay_ms=5)
    run_id = await scene.talk.say(wish)
    least = scene.rng.randint(1, 3)

    async def has_results() -> bool:
        return len([message for message in scene.talk.messages(run_id) if message["role"] == "tool"]) >= least

    await eventually(has_results, every=0.005)
    await scene.cancel(run_id)
    await scene.expect_end(run_id, "cancelled", "completed")


async def at_the_last_event(scene: Scene) -> None:
    """At the moment of the model's last word: completed or cancelled, but one of them."""
    wish = scene.wish(gate=scene.name, gate_after=10_000)
    run_id = await scene.talk.say(wish)
    await scene.bed.model.someone_at(scene.name)
    scene.bed.model.open(scene.name)
    await lasts(scene.rng.choice([0, 0, 0.002, 0.005, 0.01, 0.02]))  # where in the race it falls
    await scene.cancel(run_id)
    await scene.expect_end(run_id, "cancelled", "completed")


async def after_the_end(scene: Scene) -> None:
    """Nothing changes."""
    wish = scene.wish()
    run_id = await scene.talk.say(wish)
    await scene.talk.expect(run_id, wish)
    before = len(scene.talk.events)
    await scene.cancel(run_id, times=2)
    stored = await scene.talk.client.call("GET", f"/api/runs/{run_id}")
    reason = stored.json()["reason"]
    scene.talk.tally.require(reason == "completed", f"{scene.name}: {reason}")
    await expect_next(scene.talk)
    ends = [event for event in scene.talk.events[before:] if event.type == "run.finished"]
    scene.talk.tally.require(len(ends) == 1, f"{scene.name}: {len(ends)} ends after the end")


POINTS: tuple[Callable[[Scene], Awaitable[None]], ...] = (
    queued, before_the_model, first_delta, mid_delta, twice, in_a_tool, between_steps, at_the_last_event, after_the_end,
)  # fmt: skip


@case(62, "Cancel at every point: queued, in the model, in a tool, between steps, at the end, twice", quick=True)
async def cancelled(bed: Bed, rng: Random, trials: int) -> Tally:
    """One end within 2 s, the model's connection closed, what was streamed is what is stored, and the next message works.

    The seconds are those from the cancel to the end.
    """
    tally = Tally()
    for trial in range(trials):
        for point in POINTS:
            tools = ["CurrentTimeTool", *(f"ledger_{effect}" for effect in EFFECTS)]
            async with conversation(rng.choice(bed.clients), tally, tools=tools) as talk:
                scene = Scene(bed, talk, rng, f"{point.__name__}-{trial}")
                async with _streamed(scene):
                    await point(scene)
                    await expect_next(talk)
                    await _compare(scene)
    return tally


@asynccontextmanager
async def _streamed(scene: Scene) -> AsyncIterator[None]:
    """Gathers the scene's deltas."""
    connected = asyncio.Event()

    async def follow() -> None:
        client = scene.talk.client
        path = f"/api/sessions/{scene.talk.session_id}/events"
        async with open_stream(client.any_gateway(), path, last_event_id=0, deltas=True) as stream:
            connected.set()
            async for event in stream:
                if event.type == "message.delta":
                    data = event.data
                    text = scene.streamed.get(data["message_id"], "")
                    scene.streamed[data["message_id"]] = text[: data["offset"]] + data["text"]

    task = asyncio.ensure_future(follow())
    try:
        await asyncio.wait_for(connected.wait(), 30)
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _compare(scene: Scene) -> None:
    """What was streamed of each message is what is stored of it; the last pieces may still be on their way."""
    stored = {message["id"]: message["content"] for message in scene.talk.messages()}

    async def agree() -> bool:
        return all(stored.get(message) == text for message, text in scene.streamed.items())

    try:
        await eventually(agree, within=3)
    except AssertionError:
        wrong = {
            text[-60:]: stored.get(m, "nothing")[-60:] for m, text in scene.streamed.items() if stored.get(m) != text
        }
        scene.talk.tally.surprise(f"{scene.name}: streamed and stored (their ends): {wrong}")
