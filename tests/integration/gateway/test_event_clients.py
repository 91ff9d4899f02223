"""Clients of event streams that misbehave: they don't read, vanish, come back somewhere else, keep a dead key, or are very many."""

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator, Iterator

import httpx
import psutil
import pytest

from services.gateway.store.api_keys import hash_key
from services.gateway.store.api_keys import issue_key as store_key
from shared.db.pool import Connection
from tests.integration.gateway.idle_streams import idle_clients, measure
from tests.integration.gateway.served import ServedGateways, run_admin
from tests.support.api import create_session, open_events, post_message, problem_of, seqs
from tests.support.stack import Stack
from tests.support.waiting import eventually

KEEP_ALIVE = 0.5
CLIENTS_PER_TENANT = 320
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def replicas(stack: Stack) -> Iterator[ServedGateways]:
    gateways = ServedGateways(
        stack,
        2,
        STREAMS__KEEP_ALIVE=str(KEEP_ALIVE),
        STREAMS__KEY_CHECK_EVERY="0.3",
        STREAMS__SEND_TIMEOUT="1",
        STREAMS__CLIENTS_PER_TENANT=str(CLIENTS_PER_TENANT),
        KEY_CACHE_SECONDS="0",
        LIMITS__RUNS_PER_SESSION="1000",
    )
    yield gateways
    gateways.stop()


@pytest.fixture
async def here(replicas: ServedGateways) -> AsyncIterator[httpx.AsyncClient]:
    async with replicas.client(0) as client:
        yield client


def memory_of(replicas: ServedGateways) -> float:
    """Bytes of the first gateway that are its own."""
    return float(psutil.Process(replicas.processes[0].pid).memory_full_info().uss)


def _ports_of_clients(replicas: ServedGateways) -> list[int]:
    """Where the open connections of the first gateway come from."""
    process = replicas.processes[0]
    return [
        connection.raddr.port
        for connection in psutil.Process(process.pid).net_connections("tcp")
        if connection.laddr.port == process.port and connection.raddr
    ]


async def test_three_hundred_idle_clients_are_cheap_and_hear_that_they_are_connected(
    replicas: ServedGateways, here: httpx.AsyncClient
) -> None:
    session = await create_session(here)
    url, path = httpx.URL(replicas.processes[0].base_url), f"/api/sessions/{session['id']}/events"
    cost = await measure(url, path, replicas.key, replicas.processes[0].pid, CLIENTS_PER_TENANT - 120, KEEP_ALIVE)
    assert cost.all_kept_alive
    assert cost.bytes_per_client < 24_000
    await eventually(lambda: _has_at_most(replicas, 5), within=10)


async def _has_at_most(replicas: ServedGateways, count: int) -> bool:
    return len(await asyncio.to_thread(_ports_of_clients, replicas)) <= count


async def test_a_tenant_has_so_many_streams_and_a_closed_one_makes_room(
    replicas: ServedGateways, here: httpx.AsyncClient
) -> None:
    session = await create_session(here)
    url, path = httpx.URL(replicas.processes[0].base_url), f"/api/sessions/{session['id']}/events"
    async with idle_clients(url, path, replicas.key, CLIENTS_PER_TENANT) as clients:
        refused = await here.get(path)
        problem_of(refused, 429, "too_many_streams")
        assert int(refused.headers["retry-after"]) >= 1
        async with replicas.client(1) as there, open_events(there, path):
            pass  # another gateway has room
        key = await asyncio.to_thread(run_admin, replicas.environment, store_key, "another", "test")
        async with replicas.client(0, key) as stranger:
            other = await create_session(stranger)
            async with open_events(stranger, f"/api/sessions/{other['id']}/events"):
                pass  # so has this one for another tenant
        clients[0].close()

        async def has_room() -> bool:
            async with here.stream("GET", path) as answer:
                return answer.status_code == 200

        await eventually(has_room, within=10)


async def test_a_client_that_stops_reading_is_cut_costs_little_and_misses_nothing(
    replicas: ServedGateways, here: httpx.AsyncClient
) -> None:
    session = await create_session(here)
    path = f"/api/sessions/{session['id']}/events"
    await post_message(here, session["id"], "x" * MIB)
    slow = await asyncio.to_thread(_open_and_stop_reading, replicas, path)
    before = memory_of(replicas)
    highest = before
    for _ in range(30):
        await post_message(here, session["id"], "x" * MIB)
        highest = max(highest, memory_of(replicas))
    await eventually(lambda: _is_cut(replicas, slow), within=40)
    slow.close()
    assert highest - before < 25 * MIB, "of 30 MiB that it was sent"
    async with replicas.client(1) as there, open_events(there, path, headers={"Last-Event-ID": "1"}) as events:
        assert seqs(await events.take(61)) == list(range(2, 63))


def _open_and_stop_reading(replicas: ServedGateways, path: str) -> socket.socket:
    """A connection with a stream from its beginning, of which the first bytes were read and no more."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", replicas.processes[0].port))
    head = f"GET {path}?after=0 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {replicas.key}\r\n\r\n"
    client.sendall(head.encode())
    assert client.recv(100).startswith(b"HTTP/1.1 200 ")
    return client


async def _is_cut(replicas: ServedGateways, client: socket.socket) -> bool:
    """Whether the gateway has let go of a connection: nobody tells a client that doesn't listen."""
    return client.getsockname()[1] not in await asyncio.to_thread(_ports_of_clients, replicas)


async def test_a_client_that_comes_back_anywhere_again_and_again_misses_nothing(replicas: ServedGateways) -> None:
    chance = random.Random(11)
    async with replicas.client(0) as here, replicas.client(1) as there:
        clients = (here, there)
        session = await create_session(here)
        path = f"/api/sessions/{session['id']}/events"
        last = 0

        async def post_all() -> None:
            for n in range(200):
                await post_message(chance.choice(clients), session["id"], f"{n}")

        posting = asyncio.ensure_future(post_all())
        visits = 0
        while last < 400:
            visits += 1
            wanted = min(chance.randint(1, 3), 400 - last)
            async with open_events(chance.choice(clients), path, headers={"Last-Event-ID": str(last)}) as events:
                got = seqs(await events.take(wanted))
            assert got == list(range(last + 1, last + wanted + 1))
            last = got[-1]
        await posting
        assert visits >= 130


@pytest.mark.parametrize("end", ["revoked_at = now()", "expires_at = now()"])
async def test_a_key_that_ends_takes_its_streams_with_it(
    replicas: ServedGateways, here: httpx.AsyncClient, end: str
) -> None:
    session = await create_session(here)
    key = await asyncio.to_thread(run_admin, replicas.environment, store_key, "default", f"to be ended by {end}")
    path = f"/api/sessions/{session['id']}/events"
    async with replicas.client(1, key) as client, open_events(client, path) as events, open_events(here, path) as own:
        await asyncio.to_thread(run_admin, replicas.environment, _end_key, key, end)
        assert await events.next() is None
        problem_of(await client.get(path), 401, "unauthorized")
        await post_message(here, session["id"])
        assert seqs(await own.take(2)) == [1, 2]


async def _end_key(connection: Connection, key: str, end: str) -> None:
    await connection.execute(f"UPDATE api_key SET {end} WHERE key_hash = $1", hash_key(key))


async def test_clients_that_vanish_while_the_stream_opens_leave_nothing(
    replicas: ServedGateways, here: httpx.AsyncClient
) -> None:
    session = await create_session(here)
    path = f"/api/sessions/{session['id']}/events"
    for _ in range(3):
        for _ in range(CLIENTS_PER_TENANT):
            with contextlib.closing(socket.socket()) as client:
                client.connect(("127.0.0.1", replicas.processes[0].port))
                head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {replicas.key}\r\n\r\n"
                client.sendall(head.encode())

    async def has_room() -> bool:
        async with here.stream("GET", path) as answer:
            return answer.status_code == 200

    await eventually(has_room, within=20)
    await eventually(lambda: _has_at_most(replicas, 5), within=20)
