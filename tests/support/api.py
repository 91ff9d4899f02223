"""The gateway in this process, clients of it, and what tests say to it.

gateway = RunningGateway(database_url, rabbitmq_url); await gateway.start()
client = await gateway.client("tenant")                  # httpx.AsyncClient with a fresh key
agent = await create_agent(client)
await gateway.stop()
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import orjson
from fastapi import FastAPI

from services.gateway.app import create_app
from services.gateway.deps import Parts
from services.gateway.main import running_parts
from services.gateway.settings import GatewaySettings
from services.gateway.store.api_keys import issue_key

Json = dict[str, Any]


class RunningGateway:
    """The gateway's parts and application; requests go to it without a socket."""

    def __init__(self, database_url: str, rabbitmq_url: str, **settings: Any) -> None:
        self._settings = GatewaySettings.model_validate(
            {"DATABASE_URL": database_url, "RABBITMQ_URL": rabbitmq_url, **settings}
        )
        self._stop = asyncio.Event()
        self._clients: list[httpx.AsyncClient] = []
        self._task: asyncio.Task[None] | None = None
        self.parts: Parts
        self.app: FastAPI

    async def start(self) -> None:
        started = asyncio.get_running_loop().create_future()
        self._task = asyncio.ensure_future(self._run(started))
        await asyncio.wait([self._task, started], return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            self._task.result()
        self.parts = started.result()
        self.app = create_app(self.parts)

    async def _run(self, started: "asyncio.Future[Parts]") -> None:
        # One task opens and closes the parts, whatever task a test's fixtures run in.
        async with running_parts(self._settings) as parts:
            started.set_result(parts)
            await self._stop.wait()

    async def stop(self) -> None:
        for client in self._clients:
            await client.aclose()
        self._stop.set()
        if self._task is not None:
            await self._task

    async def issue_key(self, tenant: str) -> str:
        async with self.parts.pool.acquire() as connection:
            return await issue_key(connection, tenant, "test")

    async def client(self, tenant: str = "default") -> httpx.AsyncClient:
        """A client with a fresh key of a tenant."""
        return self.client_with(await self.issue_key(tenant))

    def client_with(self, key: str | None) -> httpx.AsyncClient:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=True)
        client = httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=headers)
        self._clients.append(client)
        return client


async def created(request: Any) -> Json:
    """The body of an answer that must be a success."""
    response = await request
    assert response.is_success, response.text
    body: Json = response.json()
    return body


async def create_agent(client: httpx.AsyncClient, **fields: Any) -> Json:
    return await created(client.post("/api/agents", json={"name": "Agent", **fields}))


async def create_session(client: httpx.AsyncClient, agent_id: str | None = None) -> Json:
    """A session, with an agent of its own unless one is given."""
    agent_id = agent_id or (await create_agent(client))["id"]
    return await created(client.post("/api/sessions", json={"agent_id": agent_id}))


async def post_message(client: httpx.AsyncClient, session_id: str, content: str = "Hello", **fields: Any) -> Json:
    return await created(client.post(f"/api/sessions/{session_id}/messages", json={"content": content, **fields}))


async def create_knowledge_base(client: httpx.AsyncClient, **fields: Any) -> Json:
    return await created(client.post("/api/knowledge-bases", json={"name": "Base", **fields}))


async def upload(
    client: httpx.AsyncClient, knowledge_base_id: str, content: bytes = b"# Title\n\nText.\n", filename: str = "a.md"
) -> Json:
    """One document."""
    files = {"files": (filename, content)}
    body = await created(client.post(f"/api/knowledge-bases/{knowledge_base_id}/documents", files=files))
    document: Json = body["items"][0]
    return document


async def read_all(client: httpx.AsyncClient, path: str, **params: Any) -> list[Json]:
    """All items of a list, page by page."""
    items: list[Json] = []
    while True:
        page = await created(client.get(path, params=params))
        items += page["items"]
        if page["next_cursor"] is None:
            return items
        params["cursor"] = page["next_cursor"]


def problem_of(response: httpx.Response, status: int, code: str) -> Json:
    """The body of an answer that must be this problem."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: Json = response.json()
    assert body["code"] == code, body
    assert {"type", "title", "status", "detail"} <= body.keys()
    assert body["status"] == status
    return body


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """An event as its bytes came. `id` is None for one that is not stored."""

    id: int | None
    type: str
    data: bytes

    @property
    def fields(self) -> Json:
        fields: Json = orjson.loads(self.data)
        return fields


class EventReader:
    """Reads server-sent events from an open response."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.comments = 0
        self._chunks = response.aiter_bytes()
        self._waiting = b""

    async def next(self, seconds: float = 10) -> ServerSentEvent | None:
        """The next event, None at the end of the stream. Raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while True:
                block, found, rest = self._waiting.partition(b"\n\n")
                if found:
                    self._waiting = rest
                    if (event := self._parse(block)) is not None:
                        return event
                    continue
                try:
                    self._waiting += await anext(self._chunks)
                except StopAsyncIteration:
                    return None

    async def take(self, count: int) -> list[ServerSentEvent]:
        events = [await self.next() for _ in range(count)]
        assert all(event is not None for event in events), "the stream ended early"
        return [event for event in events if event is not None]

    async def until(self, event_type: str) -> list[ServerSentEvent]:
        """Events up to the first of a type, which is the last."""
        events: list[ServerSentEvent] = []
        while not events or events[-1].type != event_type:
            events += await self.take(1)
        return events

    def _parse(self, block: bytes) -> ServerSentEvent | None:
        if block.startswith(b":"):
            self.comments += 1
        match = re.fullmatch(rb"(?:id: (\d+)\n)?event: ([^\n]+)\ndata: ([^\n]*)", block)
        if match is None:
            return None  # a comment, or how long to wait before coming back
        return ServerSentEvent(int(match[1]) if match[1] else None, match[2].decode(), match[3])


@asynccontextmanager
async def open_events(
    client: httpx.AsyncClient, path: str, *, headers: dict[str, str] | None = None, **params: Any
) -> AsyncIterator[EventReader]:
    """An open event stream of a gateway that is served over a socket."""
    async with client.stream("GET", path, params=params, headers=headers, timeout=30) as response:
        assert response.status_code == 200, await response.aread()
        yield EventReader(response)


def seqs(events: Sequence[ServerSentEvent]) -> list[int]:
    return [event.id for event in events if event.id is not None]
