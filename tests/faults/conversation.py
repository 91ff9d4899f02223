"""One session as a careful client sees it: it posts with idempotency keys, follows the events with resume, and forgets nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import httpx

from shared.ids import new_id
from tests.faults.client import TenantClient
from tests.faults.clock import lasts
from tests.faults.model import Wish
from tests.faults.tally import Tally
from tests.support.sse import SseEvent, open_stream
from tests.support.waiting import eventually

END_SECONDS = 60.0
"""An accepted run ends so soon after the end of a fault."""


class Conversation:
    """`events` are those with an id, in the order of arrival; `reconnects` counts the streams that were cut."""

    def __init__(self, client: TenantClient, session_id: str, tally: Tally, at: int | None = None) -> None:
        self.client = client
        self.session_id = session_id
        self.tally = tally
        self.events: list[SseEvent] = []
        self.accepted: list[str] = []
        self.reconnects = 0
        self._at = at
        self._connected = asyncio.Event()
        self._lost: set[str] = set()
        self._cuts = 0.0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def connected(self) -> None:
        """Returns when its first stream is open."""
        await asyncio.wait_for(self._connected.wait(), END_SECONDS)

    def reconnect_often(self, probability: float) -> None:
        """From now on it drops its stream after an event with this probability."""
        self._cuts = probability

    async def say(self, wish: Wish | str, *, patience: float = 60, **fields: Any) -> str:
        """Posts a message; the id of its run. Raises GaveUp when nobody accepts it."""
        content = wish.in_words(f"{self.client.canary} asks") if isinstance(wish, Wish) else wish
        self.tally.attempted += 1
        path = f"/api/sessions/{self.session_id}/messages"
        response = await self.client.call("POST", path, json={"content": content, **fields}, patience=patience)
        if response.status_code != 202:
            raise AssertionError(f"POST {path}: {response.status_code} {response.text}")
        self.tally.acknowledged += 1
        run_id = str(response.json()["run"]["id"])
        self.accepted.append(run_id)
        return run_id

    def end_of(self, run_id: str) -> dict[str, Any] | None:
        """The data of its run.finished, if that has come."""
        found = (e.data for e in self.events if e.type == "run.finished" and run_id in e.raw)
        return next((data for data in found if data["run_id"] == run_id), None)

    async def ended(self, run_id: str, within: float = END_SECONDS) -> dict[str, Any] | None:
        """The data of its run.finished; None, and a lost run in the tally, when that does not come."""

        async def end() -> dict[str, Any] | None:
            return self.end_of(run_id)

        try:
            return await eventually(end, within=within)
        except AssertionError:
            self.tally.lost += run_id not in self._lost
            self._lost.add(run_id)
            return None

    async def expect(self, run_id: str, wish: Wish, within: float = END_SECONDS, reason: str = "completed") -> None:
        """The run ends for this reason; a completed one with the answer wished for."""
        end = await self.ended(run_id, within)
        if end is None:
            return
        if end["reason"] != reason:
            self.tally.surprise(f"run {run_id} ended with {end['reason']} {end['error']}, not {reason}")
        elif reason == "completed" and self.text_of(run_id) != wish.answer:
            self.tally.surprise(f"run {run_id} said {self.text_of(run_id)!r:.200}, not {wish.answer!r:.200}")
        else:
            self.tally.ok += 1

    def messages(self, run_id: str | None = None) -> list[dict[str, Any]]:
        """The messages that events brought, of one run or of all."""
        created = [event.data["message"] for event in self.events if event.type == "message.created"]
        return [message for message in created if run_id in (None, message["run_id"])]

    def text_of(self, run_id: str) -> str:
        """The content of the run's last message."""
        return str(self.messages(run_id)[-1]["content"])

    def states_of(self, run_id: str) -> list[tuple[str, int]]:
        """The states (and steps) that were announced for a run."""
        states = (event.data for event in self.events if event.type == "run.state" and run_id in event.raw)
        return [(data["state"], data["step"]) for data in states]

    async def check(self) -> None:
        """G4: ids 1..n, one end for each run, in the order of acceptance, and what the client saw is what is stored."""
        ids = [event.id for event in self.events]
        if ids != list(range(1, len(ids) + 1)):
            self.tally.duplicated += len(ids) - len(set(ids))
            self.tally.surprise(f"session {self.session_id} has the event ids {ids[:60]}")
        ends = [event.data["run_id"] for event in self.events if event.type == "run.finished"]
        self.tally.duplicated += len(ends) - len(set(ends))
        begun = [event.data["message"]["run_id"] for event in self.events if _is_question(event)]
        if sorted(begun) != sorted(self.accepted):
            self.tally.duplicated += max(len(begun) - len(self.accepted), 0)
            self.tally.surprise(
                f"session {self.session_id}: {len(self.accepted)} messages accepted, {len(begun)} are there"
            )
        items = await self.client.items(f"/api/sessions/{self.session_id}/messages")
        stored = [(message["id"], message["role"], message["content"]) for message in items]
        seen = [(message["id"], message["role"], message["content"]) for message in self.messages()]
        if all(run_id in ends for run_id in self.accepted) and seen != stored:
            self.tally.surprise(f"session {self.session_id}: {len(seen)} messages seen, {len(stored)} others stored")

    async def _follow(self) -> None:
        path = f"/api/sessions/{self.session_id}/events"
        while True:
            last = self.events[-1].id if self.events else 0
            first = self._at is not None and not self._connected.is_set()
            gateway = self.client.gateways[self._at or 0] if first else self.client.any_gateway()
            try:
                async with open_stream(gateway, path, last_event_id=last) as stream:
                    self._connected.set()
                    await self._read(stream)
            except httpx.HTTPStatusError as error:
                self.client.inspect(error.response.status_code, error.response.text)
            except (httpx.HTTPError, OSError):
                pass  # a cut, which is what resume is for
            self.reconnects += 1
            await lasts(0.2)

    async def _read(self, stream: AsyncIterator[SseEvent]) -> None:
        async for event in stream:
            self.client.inspect(200, event.raw)
            if event.id is not None:
                self.events.append(event)
                if self._cuts and self.client.rng.random() < self._cuts:
                    return


def _is_question(event: SseEvent) -> bool:
    return event.type == "message.created" and event.data["message"]["role"] == "user"


async def create_agent(client: TenantClient, tools: list[str] | None = None, **fields: Any) -> str:
    """An agent of the scripted model; its id."""
    body = {"name": "Guide", "model": "scripted", **({} if tools is None else {"tools": tools}), **fields}
    return str((await client.create("/api/agents", body))["id"])


@asynccontextmanager
async def conversation(
    client: TenantClient, tally: Tally, agent_id: str | None = None, *, at: int | None = None, **agent: Any
) -> AsyncIterator[Conversation]:
    """A new session, followed until the end of the block, when it is checked; `at` is the gateway that it is followed at first."""
    agent_id = agent_id or await create_agent(client, **agent)
    session = await client.create("/api/sessions", {"agent_id": agent_id, "title": client.canary})
    async with Conversation(client, str(session["id"]), tally, at) as talk:
        yield talk
        await talk.check()


def new_wish(client: TenantClient, **fields: Any) -> Wish:
    """A wish of its own id whose answer carries the tenant's canary."""
    wish_id = new_id().hex
    return Wish(**{"id": wish_id, "text": f"{client.canary} gets {wish_id}", **fields})
