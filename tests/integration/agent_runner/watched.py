"""A session that a client watches: through a real gateway, beside real runners."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from services.gateway.store.api_keys import issue_key
from shared.db.pool import Pool
from tests.support.scripted_model import ScriptedModel
from tests.support.seed import SeededSession, seed_session
from tests.support.sse import open_stream
from tests.support.stack import ServiceProcess
from tests.support.waiting import eventually
from tests.support.watcher import Watcher


@dataclass
class Conversation:
    """A session, its client, and what the client sees."""

    client: httpx.AsyncClient
    session: SeededSession
    watcher: Watcher

    async def post(self, content: str, **fields: Any) -> str:
        path = f"/api/sessions/{self.session.session_id}/messages"
        response = await self.client.post(path, json={"content": content, **fields})
        run_id: str = response.raise_for_status().json()["run"]["id"]
        return run_id

    async def cancel(self, run_id: str) -> dict[str, Any]:
        response = await self.client.post(f"/api/runs/{run_id}/cancel")
        assert response.status_code == 202
        body: dict[str, Any] = response.json()
        return body

    async def sees(self, kind: str, count: int = 1) -> None:
        async def seen() -> bool:
            return self.watcher.count(kind) >= count

        await eventually(seen)

    async def stored(self) -> list[dict[str, Any]]:
        response = await self.client.get(f"/api/sessions/{self.session.session_id}/messages")
        items: list[dict[str, Any]] = response.raise_for_status().json()["items"]
        return items

    async def assert_shown_is_stored(self) -> None:
        stored = {m["id"]: m["content"] for m in await self.stored() if m["role"] == "assistant"}
        assert self.watcher.shown == stored
        assert self.watcher.void == []


@asynccontextmanager
async def conversation(
    pool: Pool, gateway: ServiceProcess, tools: tuple[str, ...] = ("slow",)
) -> AsyncIterator[Conversation]:
    """A new session of an agent with these tools, watched from its beginning."""
    session = await seed_session(pool)
    await pool.execute("UPDATE agent SET tools = $2 WHERE id = $1", session.agent_id, list(tools))
    async with pool.acquire() as connection:
        key = await issue_key(connection, str(session.tenant_id), "test")
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=gateway.base_url, headers=headers, timeout=30) as client:
        watcher = Watcher()
        path = f"/api/sessions/{session.session_id}/events"
        async with open_stream(client, path, last_event_id=0, deltas=True) as stream:

            async def watch() -> None:
                async for event in stream:
                    watcher.take(event)

            watching = asyncio.ensure_future(watch())
            yield Conversation(client, session, watcher)
            failed = watching.done() and not watching.cancelled()
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            if failed:
                watching.result()


def gate(model: ScriptedModel, name: str) -> Callable[[], Awaitable[bool]]:
    async def somebody_stands_there() -> bool:
        return model.gate(name).waiting > 0

    return somebody_stands_there
