"""Load: many sessions of several tenants over both gateways, and documents, for as long as a block lasts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from tests.faults.bed import Bed
from tests.faults.client import GaveUp, TenantClient
from tests.faults.clock import lasts
from tests.faults.conversation import Conversation, conversation, create_agent, new_wish
from tests.faults.documents import Library
from tests.faults.model import Wish
from tests.faults.tally import Tally
from tests.support.scripted_replies import ScriptedCall
from tests.support.waiting import eventually

MESSAGES = 3
"""Posted to each session."""
DRAIN_SECONDS = 90.0
CUT_PROBABILITY = 0.03
SECTIONS = (2, 5)
_ARGUMENTS: dict[str, dict[str, Any]] = {
    "CurrentTimeTool": {},
    "ledger_read": {"amount": 1},
    "ledger_keyed": {"amount": 2},
}
_RESUMED = "SELECT count(*) AS resumed FROM run WHERE id::text = ANY ($1) AND lease_epoch > 1 AND reason = 'completed'"


class Load:
    """`sessions` clients at a time; `tally` has what became of their messages. Ends, and waits for every answer, with `stop()`."""

    def __init__(self, bed: Bed, rng: Random, tally: Tally, *, sessions: int, documents: bool) -> None:
        self._bed = bed
        self._rng = rng
        self._tally = tally
        self._sessions = sessions
        self._documents = documents
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._calls: list[ScriptedCall] = []
        self.accepted: list[str] = []

    async def start(self) -> None:
        """Begins; returns when the first answers are there."""
        tools = await self._usable_tools()
        agents = [await create_agent(client, tools) for client in self._bed.clients]
        for number in range(self._sessions):
            at = number % len(agents)
            self._tasks.append(asyncio.ensure_future(self._talk_on(self._bed.clients[at], agents[at])))
        if self._documents:
            library = await Library.found(self._rng.choice(self._bed.clients), SECTIONS)
            self._tasks.append(asyncio.ensure_future(self._upload_on(library)))

        async def flows() -> bool:
            return self._tally.ok >= min(self._sessions, 4) or any(task.done() for task in self._tasks)

        await eventually(flows, within=60)

    async def stop(self) -> None:
        """Posts nothing more and waits for what was accepted; what has no end by then is lost."""
        self._stopping.set()
        if not self._tasks:
            return
        _, waiting = await asyncio.wait(self._tasks, timeout=DRAIN_SECONDS)
        for task in waiting:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, asyncio.CancelledError):
                self._tally.surprise(f"a client was still waiting {DRAIN_SECONDS:g} s after the last message")
            elif isinstance(outcome, BaseException):
                self._tally.surprise(f"a client failed: {outcome!r}")
        await self._count_recovered()

    async def _usable_tools(self) -> list[str]:
        items = (await self._bed.clients[0].call("GET", "/api/tools")).json()["items"]
        tools = sorted({item["name"] for item in items} & _ARGUMENTS.keys())
        self._calls = [ScriptedCall(name=name, arguments=_ARGUMENTS[name]) for name in tools]
        return tools

    async def _talk_on(self, client: TenantClient, agent_id: str) -> None:
        while not self._stopping.is_set():
            async with conversation(client, self._tally, agent_id) as talk:
                talk.reconnect_often(CUT_PROBABILITY)
                await self._talk(talk)

    async def _talk(self, talk: Conversation) -> None:
        asked: list[tuple[str, Wish]] = []
        for _ in range(MESSAGES):
            if self._stopping.is_set():
                break
            wish = self._wish(talk.client)
            try:
                asked.append((await talk.say(wish), wish))
            except GaveUp as error:
                self._tally.surprise(str(error))
                continue
            if self._rng.random() < 0.5:  # the others are posted while it works
                await talk.ended(asked[-1][0], within=DRAIN_SECONDS)
        self.accepted += talk.accepted
        for run_id, wish in asked:
            await talk.expect(run_id, wish, within=DRAIN_SECONDS)

    def _wish(self, client: TenantClient) -> Wish:
        """None, one or two rounds of tool calls, then an answer that takes from a tenth of a second to two."""
        rounds = [[self._rng.choice(self._calls)] for _ in range(self._rng.randint(0, 2))]
        delay = self._rng.choice([5, 20, 80, 200])
        return new_wish(client, calls=rounds, delay_ms=delay, chunk_chars=8)

    async def _upload_on(self, library: Library) -> None:
        while not self._stopping.is_set():
            document = await library.upload(self._rng.choice(SECTIONS))
            self._tally.attempted += 1
            self._tally.acknowledged += 1
            await library.expect(document, self._tally, within=DRAIN_SECONDS)
            await lasts(self._rng.uniform(0, 1))

    async def _count_recovered(self) -> None:
        rows = await self._bed.fetch(_RESUMED, self.accepted)
        self._tally.recovered += rows[0]["resumed"]


@asynccontextmanager
async def background_load(
    bed: Bed, rng: Random, tally: Tally, *, sessions: int = 12, documents: bool = True
) -> AsyncIterator[Load]:
    """Load from before the block, once it flows, to its end; then every answer is waited for."""
    load = Load(bed, rng, tally, sessions=sessions, documents=documents)
    await load.start()
    try:
        yield load
    finally:
        await load.stop()
