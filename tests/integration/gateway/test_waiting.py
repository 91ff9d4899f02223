"""Requests that have to wait: for one of few connections, for a row that somebody holds, beside heavy work."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import asyncpg
import httpx
import pytest

from tests.integration.gateway.pairs import NO_BROKER
from tests.support.api import (
    RunningGateway,
    create_agent,
    create_knowledge_base,
    create_session,
    created,
    post_message,
    problem_of,
)

MIB = 1024 * 1024


@asynccontextmanager
async def small_gateway(database_url: str, **pool: float) -> AsyncIterator[RunningGateway]:
    gateway = RunningGateway(database_url, NO_BROKER, pool={"max_size": 5, **pool})
    await gateway.start()
    yield gateway
    await gateway.stop()


@asynccontextmanager
async def locked(database_url: str, session_ids: list[str]) -> AsyncIterator[None]:
    """Somebody else holds these rows for the time of the block."""
    connection = await asyncpg.connect(database_url)
    async with connection.transaction():
        await connection.execute(
            "SELECT FROM chat_session WHERE id = ANY ($1) FOR UPDATE", [UUID(session_id) for session_id in session_ids]
        )
        yield
    await connection.close()


async def test_two_hundred_requests_share_five_connections(database_url: str) -> None:
    async with small_gateway(database_url, acquire_timeout=20) as gateway:
        client = await gateway.client()
        sessions = [await create_session(client, (await create_agent(client))["id"]) for _ in range(10)]
        answers = await asyncio.gather(
            *(
                client.post(f"/api/sessions/{sessions[n % 10]['id']}/messages", json={"content": f"{n}"})
                for n in range(200)
            )
        )
        assert {answer.status_code for answer in answers} == {202}
        assert gateway.parts.pool.get_idle_size() == gateway.parts.pool.get_size(), "every connection was given back"


async def test_waiting_for_a_connection_ends_with_a_time_to_come_again(database_url: str) -> None:
    async with small_gateway(database_url, acquire_timeout=0.2) as gateway:
        client = await gateway.client()
        await create_agent(client)  # the key is known from now on
        pool = gateway.parts.pool
        held = [await pool.acquire() for _ in range(5)]
        started = time.monotonic()
        answers = await asyncio.gather(*(client.get("/api/agents") for _ in range(50)))
        assert time.monotonic() - started < 5
        for answer in answers:
            problem_of(answer, 503, "unavailable")
            assert int(answer.headers["retry-after"]) >= 1
        for connection in held:
            await pool.release(connection)
        assert (await client.get("/api/agents")).status_code == 200


@pytest.mark.parametrize("action", ["post", "interrupt", "rename", "delete", "cancel"])
async def test_a_session_that_somebody_holds_makes_only_itself_wait(database_url: str, action: str) -> None:
    async with small_gateway(database_url, lock_timeout=1.0, acquire_timeout=2.0) as gateway:
        client = await gateway.client()
        stuck, other = await create_session(client), await create_session(client)
        run_id = (await post_message(client, stuck["id"]))["run"]["id"]
        path = f"/api/sessions/{stuck['id']}"

        async def disturb() -> httpx.Response:
            match action:
                case "rename":
                    return await client.patch(path, json={"title": "x"})
                case "delete":
                    return await client.delete(path)
                case "cancel":
                    return await client.post(f"/api/runs/{run_id}/cancel")
            when_busy = "enqueue" if action == "post" else "interrupt"
            return await client.post(f"{path}/messages", json={"content": "x", "when_busy": when_busy})

        async with locked(database_url, [stuck["id"]]):
            waiting = [asyncio.ensure_future(disturb()) for _ in range(40)]
            async with asyncio.timeout(5):
                while gateway.parts.pool.get_idle_size() >= gateway.parts.pool.get_size():  # noqa: ASYNC110 - polls the pool
                    await asyncio.sleep(0)
            longest = 0.0
            for _ in range(20):
                started = time.monotonic()
                await post_message(client, other["id"])
                assert (await client.get(path)).status_code == 200, "reading waits for nobody"
                longest = max(longest, time.monotonic() - started)
            assert longest < 1.0
            for answer in await asyncio.gather(*waiting):
                problem_of(answer, 503, "unavailable")
                assert int(answer.headers["retry-after"]) >= 1
        assert (await disturb()).is_success, "and it goes on where it was"


async def test_a_cancel_takes_less_than_two_seconds_beside_heavy_work(database_url: str) -> None:
    gateway = RunningGateway(database_url, NO_BROKER)
    await gateway.start()
    client = await gateway.client()
    base = await create_knowledge_base(client)
    sessions = [await create_session(client) for _ in range(4)]
    over = asyncio.Event()

    async def post_all_the_time(session_id: str) -> None:
        while not over.is_set():
            answer = await client.post(f"/api/sessions/{session_id}/messages", json={"content": "x" * 1000})
            assert answer.status_code in (202, 429)

    async def upload_all_the_time(number: int) -> None:
        count = 0
        while not over.is_set():
            count += 1
            content = f"{number} {count} ".encode() + b"x" * (2 * MIB)
            answer = await client.post(
                f"/api/knowledge-bases/{base['id']}/documents", files={"files": ("a.md", content)}
            )
            assert answer.status_code == 202

    async with asyncio.TaskGroup() as group:
        for session in sessions * 4:
            group.create_task(post_all_the_time(session["id"]))
        for number in range(5):
            group.create_task(upload_all_the_time(number))
        slowest = 0.0
        for number in range(6):
            victim = await create_session(client)
            run_id = (await post_message(client, victim["id"]))["run"]["id"]
            for _ in range(1 + number % 2):
                started = time.monotonic()
                assert (await created(client.post(f"/api/runs/{run_id}/cancel")))["reason"] == "cancelled"
                slowest = max(slowest, time.monotonic() - started)
        over.set()
    assert slowest < 2
    await gateway.stop()
