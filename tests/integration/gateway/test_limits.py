"""What is refused with a time to wait: too much unfinished work, too many requests, streams or uploads; by two gateways together."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import httpx
import pytest

from services.gateway.store.admission import SQL, count_unfinished
from shared.db.pool import Pool
from tests.integration.gateway.pairs import clients_of_both, two_gateways
from tests.support.api import (
    RunningGateway,
    create_knowledge_base,
    create_session,
    created,
    post_message,
    problem_of,
    read_all,
    upload,
)

# A machine that is busy with other things may leave some.
LEFT_IN_BUCKET = (
    "SELECT least($1::float8, tokens + extract(epoch FROM now() - refilled_at)::float8 * $2) FROM request_rate"
)


def told_to_wait(answer: httpx.Response, code: str) -> None:
    problem_of(answer, 429, code)
    assert int(answer.headers["retry-after"]) >= 1


async def counted(pool: Pool, kind: Any, tenant_id: UUID) -> tuple[int, int]:
    async with pool.acquire() as connection:
        count = await count_unfinished(connection, tenant_id, kind)
    return count.of_tenant, count.of_system


async def test_unfinished_runs_are_limited_over_gateways_and_an_end_makes_room(database_url: str) -> None:
    limits = {"runs_per_tenant": 5, "runs": 8}
    async with two_gateways(database_url, limits=limits) as (here, there):
        client, elsewhere = await clients_of_both((here, there))
        session = await create_session(client)
        path, body = f"/api/sessions/{session['id']}/messages", {"content": "x"}
        accepted = [await post_message((client, elsewhere)[n % 2], session["id"]) for n in range(5)]
        for refusing in (client, elsewhere):
            told_to_wait(await refusing.post(path, json=body), "too_many_runs")
        assert len(await read_all(client, path)) == 5, "what is refused leaves nothing"
        await created(elsewhere.post(f"/api/runs/{accepted[0]['run']['id']}/cancel"))
        await post_message(client, session["id"])

        stranger = await there.client("another")
        other = await create_session(stranger)
        for _ in range(3):
            await post_message(stranger, other["id"])
        told_to_wait(await stranger.post(f"/api/sessions/{other['id']}/messages", json=body), "system_full")
        await client.delete(f"/api/sessions/{session['id']}")
        await post_message(stranger, other["id"])


async def test_an_accepted_request_is_answered_again_however_full_it_is(database_url: str) -> None:
    async with two_gateways(database_url, limits={"runs_per_tenant": 1, "documents_per_tenant": 1}) as (here, _):
        client = await here.client()
        session, base = await create_session(client), await create_knowledge_base(client)
        for path, body in (
            (f"/api/sessions/{session['id']}/messages", {"json": {"content": "x"}}),
            (f"/api/knowledge-bases/{base['id']}/documents", {"files": {"files": ("a.md", b"x")}}),
        ):
            headers = {"Idempotency-Key": path.rsplit("/", 1)[1]}
            first = await client.post(path, headers=headers, **body)
            again = await client.post(path, headers=headers, **body)
            assert (first.status_code, again.status_code, again.content) == (202, 202, first.content)


async def test_an_accepted_interrupt_is_answered_again_however_full_it_is(database_url: str) -> None:
    async with two_gateways(database_url, limits={"runs_per_tenant": 1}) as (here, there):
        clients = await clients_of_both((here, there))
        session = await create_session(clients[0])
        path, body = f"/api/sessions/{session['id']}/messages", {"content": "x", "when_busy": "interrupt"}
        answers = [await client.post(path, json=body, headers={"Idempotency-Key": "once"}) for client in clients]
        assert [answer.status_code for answer in answers] == [202, 202]
        assert answers[0].content == answers[1].content


async def test_unfinished_documents_are_limited_however_they_come(database_url: str) -> None:
    async with two_gateways(database_url, limits={"documents_per_tenant": 3, "documents": 4}) as (here, there):
        client, stranger = await here.client(), await there.client("another")
        base, other = await create_knowledge_base(client), await create_knowledge_base(stranger)
        path = f"/api/knowledge-bases/{base['id']}/documents"
        documents = [await upload(client, base["id"], f"{n}".encode()) for n in range(2)]
        told_to_wait(
            await client.post(path, files=[("files", (f"{n}.md", f"n{n}")) for n in range(2)]), "too_many_documents"
        )
        assert len(await read_all(client, path)) == 2
        documents.append(await upload(client, base["id"], b"third"))
        told_to_wait(await client.post(path, files={"files": ("a.md", b"fourth")}), "too_many_documents")
        replaced = await client.put(
            f"/api/documents/{documents[0]['id']}/content", content=b"new", headers={"Content-Type": "text/markdown"}
        )
        told_to_wait(replaced, "too_many_documents")

        await here.parts.pool.execute("UPDATE document SET state = 'failed'")
        assert (await created(client.post(f"/api/knowledge-bases/{base['id']}/retry-failed")))["retried"] == 3
        told_to_wait(await client.post(f"/api/knowledge-bases/{base['id']}/retry-failed"), "too_many_documents")
        told_to_wait(await client.post(f"/api/documents/{documents[0]['id']}/retry"), "too_many_documents")
        await upload(stranger, other["id"])
        told_to_wait(
            await stranger.post(f"/api/knowledge-bases/{other['id']}/documents", files={"files": ("b.md", b"b")}),
            "system_full",
        )
        assert (await client.delete(f"/api/documents/{documents[0]['id']}")).status_code == 204
        await upload(stranger, other["id"], b"b")


async def test_the_counters_follow_every_way_in_and_out(client: httpx.AsyncClient, gateway: RunningGateway) -> None:
    pool = gateway.parts.pool
    tenant_id = await pool.fetchval("SELECT id FROM tenant WHERE name = 'first'")
    session, base = await create_session(client), await create_knowledge_base(client)
    runs = [(await post_message(client, session["id"]))["run"]["id"] for _ in range(4)]
    documents = [(await upload(client, base["id"], f"{n}".encode()))["id"] for n in range(3)]
    assert await counted(pool, "run", tenant_id) == (4, 4)
    assert await counted(pool, "document", tenant_id) == (3, 3)
    await created(client.post(f"/api/runs/{runs[1]}/cancel"))
    await pool.execute("UPDATE document SET state = 'ready' WHERE id = $1", UUID(documents[0]))
    await pool.execute("UPDATE document SET state = 'failed' WHERE id = $1", UUID(documents[1]))
    assert await counted(pool, "run", tenant_id) == (3, 3)
    assert await counted(pool, "document", tenant_id) == (1, 1)
    await asyncio.gather(*(pool.fetchval(SQL["fold_unfinished"], 2) for _ in range(20)))
    assert await counted(pool, "run", tenant_id) == (3, 3), "folding changes no sum"
    await created(client.post(f"/api/documents/{documents[1]}/retry"))
    await client.delete(f"/api/documents/{documents[2]}")
    await client.delete(f"/api/sessions/{session['id']}")
    assert await counted(pool, "document", tenant_id) == (1, 1)
    assert await counted(pool, "run", tenant_id) == (0, 0)
    await client.delete(f"/api/knowledge-bases/{base['id']}")
    assert await counted(pool, "document", tenant_id) == (0, 0)
    while await pool.fetchval(SQL["fold_unfinished"], 1000):
        pass
    assert await pool.fetchval("SELECT count(*) FROM unfinished WHERE amount <> 0") == 0


async def test_the_rate_of_a_tenant_holds_over_two_gateways_whatever_headers_say(database_url: str) -> None:
    rate, burst = 40.0, 60
    async with two_gateways(database_url, rate={"per_second": rate, "burst": burst}) as (here, there):
        clients = await clients_of_both((here, there))
        stranger = await there.client("another")
        ends = time.monotonic() + 3
        answers: list[httpx.Response] = []

        async def flood(number: int) -> None:
            count = 0
            while time.monotonic() < ends:
                count += 1
                address = f"10.{number}.{count % 250}.1"
                spoofed = {"X-Forwarded-For": address, "Forwarded": f"for={address}", "X-Real-IP": address}
                answers.append(await clients[number % 2].get("/api/agents", headers=spoofed))

        started = time.monotonic()
        await asyncio.gather(*(flood(number) for number in range(8)))
        passed = time.monotonic() - started
        let_through = sum(answer.status_code == 200 for answer in answers)
        left = await here.parts.pool.fetchval(LEFT_IN_BUCKET, float(burst), rate)
        allowed = burst + rate * passed - left
        # Above is a promise. Below is what clients on a busy machine were too slow to ask for; the fault suite's case 66 asks for both.
        assert 0.7 * allowed <= let_through <= 1.1 * allowed
        refused = [answer for answer in answers if answer.status_code != 200]
        assert len(refused) > let_through / 2, "it was a flood"
        for answer in refused:
            told_to_wait(answer, "rate_limited")
        assert (await stranger.get("/api/agents")).status_code == 200


async def test_a_rate_of_zero_is_none(database_url: str) -> None:
    async with two_gateways(database_url, rate={"per_second": 0, "burst": 1}) as (here, _):
        client = await here.client()
        answers = [await client.get("/api/agents") for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200] * 5
        assert await here.parts.pool.fetchval("SELECT count(*) FROM request_rate") == 0


async def test_uploads_at_once_are_limited_of_a_tenant_and_in_all(database_url: str) -> None:
    load = {"uploads": 3, "uploads_per_tenant": 2}
    async with two_gateways(database_url, load=load) as (here, _):
        client, stranger = await here.client(), await here.client("another")
        paths = {
            who: f"/api/knowledge-bases/{(await create_knowledge_base(who))['id']}/documents"
            for who in (client, stranger)
        }
        going_on, release = asyncio.Semaphore(0), asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            yield b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.md"\r\n\r\nx\r\n'
            going_on.release()
            await release.wait()
            yield b"--b--\r\n"

        async def send(who: httpx.AsyncClient) -> httpx.Response:
            headers = {"Content-Type": "multipart/form-data; boundary=b"}
            return await who.post(paths[who], content=body(), headers=headers)

        uploads = [asyncio.ensure_future(send(who)) for who in (client, client, stranger)]
        for _ in uploads:
            await going_on.acquire()
        told_to_wait(await client.post(paths[client], files={"files": ("b.md", b"b")}), "too_many_uploads")
        answer = await stranger.post(paths[stranger], files={"files": ("b.md", b"b")})
        problem_of(answer, 503, "unavailable")
        assert (await client.get(paths[client])).status_code == 200, "reading is no upload"
        release.set()
        assert [(await going).status_code for going in uploads] == [202] * 3
        await upload(client, paths[client].split("/")[3], b"b")


@pytest.mark.parametrize(
    ("load", "status", "code"),
    [({"body_bytes": 1024}, 503, "unavailable"), ({"body_timeout": 0.05}, 408, "request_timeout")],
)
async def test_bodies_are_bounded_in_sum_and_in_time(
    database_url: str, load: dict[str, float], status: int, code: str
) -> None:
    async with two_gateways(database_url, load=load) as (here, _):
        client = await here.client()
        never = asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            yield b'{"name": "' + b"x" * 2000
            await never.wait()

        headers = {"Content-Type": "application/json"}
        problem_of(await client.post("/api/agents", content=body(), headers=headers), status, code)
        await created(client.post("/api/agents", json={"name": "small"}))
