"""Clients of event streams that hop, stall, idle and vanish: cases 55 to 58."""

import asyncio
import resource
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import httpx
import psutil

from tests.faults.bed import Bed
from tests.faults.catalogue import case
from tests.faults.client import TenantClient
from tests.faults.conversation import Conversation, conversation, new_wish
from tests.faults.namespaces import Namespace
from tests.faults.tally import NotHere, Tally
from tests.integration.gateway.idle_streams import measure
from tests.support.scripted_replies import ScriptedCall
from tests.support.sse import SseEvent, open_stream
from tests.support.waiting import eventually

MIB = 2**20
GROWTH_MIB = 64
STALLED = 20
CLIENT_BYTES = 64 * 1024
VANISHED_SECONDS = 60.0
_ESTABLISHED = "01"  # of the kernel's table of connections


@case(55, "Disconnect at a random event, reconnect to the other gateway, 200 times", trials=200, quick=True)
async def hopping(bed: Bed, rng: Random, trials: int) -> Tally:
    """Every event once, in order, and the same as somebody sees who stays."""
    tally = Tally()
    client = rng.choice(bed.clients)
    async with conversation(client, tally) as talk:
        stop = asyncio.Event()
        producer = asyncio.ensure_future(_talk_until(stop, talk, rng))
        try:
            seen = await _hop(client, talk.session_id, rng, trials)
        finally:
            stop.set()
            await producer
        stayed = {event.id: event.raw for event in talk.events}
        ids = [event.id for event in seen]
        tally.require(ids == list(range(1, len(ids) + 1)), f"the ids are {ids[:100]}")
        tally.require(
            all(stayed.get(event.id) == event.raw for event in seen), "an event differs from what another saw"
        )
        tally.duplicated += len(ids) - len(set(ids))
        tally.note(events=len(seen), reconnects=trials)
    return tally


async def _talk_until(stop: asyncio.Event, talk: Conversation, rng: Random) -> None:
    """Messages, three of which are unfinished at most."""
    while not stop.is_set():
        asked = []
        for _ in range(3):
            wish = new_wish(talk.client, calls=[[ScriptedCall(name="CurrentTimeTool")]] * rng.randint(0, 2))
            asked.append((await talk.say(wish), wish))
        for run_id, wish in asked:
            await talk.expect(run_id, wish)


async def _hop(client: TenantClient, session_id: str, rng: Random, hops: int) -> list[SseEvent]:
    """What a client gets that leaves after one to three events (or a delta), so many times."""
    seen: list[SseEvent] = []
    for number in range(hops):
        left = rng.randint(1, 3)
        last = seen[-1].id if seen else 0
        path = f"/api/sessions/{session_id}/events"
        gateway = client.gateways[number % 2]
        async with open_stream(gateway, path, last_event_id=last, deltas=rng.random() < 0.5) as stream:
            async for event in stream:
                client.inspect(200, event.raw)
                if event.id is not None:
                    seen.append(event)
                left -= 1
                if left == 0:
                    break
    return seen


@case(56, "Clients stop reading")
async def stalled(bed: Bed, rng: Random, trials: int) -> Tally:
    """Their connections are cut, the gateway's memory stays where it was (it would grow by 200 MiB), and they can resume."""
    tally = Tally()
    gateway = psutil.Process(bed.services["gateway-0"].pid)
    for _ in range(trials):
        client = rng.choice(bed.clients)
        async with conversation(client, tally, at=1) as talk:
            await talk.connected()
            before = gateway.memory_info().rss
            async with AsyncExitStack() as stack:
                clients = [_stalled_client(client, talk.session_id) for _ in range(STALLED)]
                ports = {await stack.enter_async_context(stalled) for stalled in clients}
                for _ in range(16):
                    wish = new_wish(client, text="0123456789abcdef", repeat=40_000, chunk_chars=65_536)
                    await talk.expect(await talk.say(wish), wish)
                await _cut(gateway, ports)
            grown = (gateway.memory_info().rss - before) / MIB
            tally.require(grown < GROWTH_MIB, f"the gateway grew by {grown:.0f} MiB")
            tally.note(clients=STALLED, grown_mib=round(grown), sent_mib_each=round(16 * 16 * 40_000 / MIB))
            await _resume(client, talk)
    return tally


async def _cut(gateway: psutil.Process, ports: set[int]) -> None:
    """Returns when a gateway has no connection to any of these ports."""

    async def are_cut() -> bool:
        connections = gateway.net_connections("tcp")
        return not any(connection.raddr and connection.raddr.port in ports for connection in connections)

    await eventually(are_cut, within=40, every=0.2)


@asynccontextmanager
async def _stalled_client(client: TenantClient, session_id: str) -> AsyncIterator[int]:
    """A client at the first gateway that reads nothing behind the head of its stream; its port."""
    url = client.gateways[0].base_url
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, (url.host, url.port))
        await loop.sock_sendall(sock, _request(client, session_id))
        head = await loop.sock_recv(sock, 64)
        assert head.startswith(b"HTTP/1.1 200"), head
        yield int(sock.getsockname()[1])


def _request(client: TenantClient, session_id: str) -> bytes:
    fields = [f"Authorization: {client.gateways[0].headers['Authorization']}", "Host: gateway", "Last-Event-ID: 0"]
    return "\r\n".join([f"GET /api/sessions/{session_id}/events?deltas=true HTTP/1.1", *fields, "", ""]).encode()


async def _resume(client: TenantClient, talk: Conversation) -> None:
    """Reads all from the beginning at the gateway that had cut."""
    last = talk.events[-1].id
    ids: list[int | None] = []
    path = f"/api/sessions/{talk.session_id}/events"
    async with open_stream(client.gateways[0], path, last_event_id=0) as stream:
        async for event in stream:
            ids.append(event.id)
            if event.id == last:
                break
    talk.tally.require(ids == list(range(1, len(ids) + 1)), f"resumed with the ids {ids[:100]}")


@case(57, "Idle clients on one gateway", trials=2000, seconds=240)
async def idle(bed: Bed, rng: Random, trials: int) -> Tally:
    """All get keep-alives; what a client costs is stated. TRIALS is their number."""
    tally = Tally()
    client = rng.choice(bed.clients)
    _raise_file_limit(trials + 1000)
    await bed.restart("gateway-0")  # with the limit, and with nothing of earlier cases in its memory
    bed.changed("gateway-0")
    session = await client.create("/api/sessions", {"agent_id": bed.agents[bed.clients.index(client)]})
    gateway = client.gateways[0]
    key = gateway.headers["Authorization"].removeprefix("Bearer ")
    path, pid = f"/api/sessions/{session['id']}/events", bed.services["gateway-0"].pid
    cost = await measure(httpx.URL(str(gateway.base_url)), path, key, pid, trials)
    tally.attempted = tally.acknowledged = trials
    tally.require(cost.all_kept_alive, "not every client got a keep-alive")
    tally.require(cost.bytes_per_client < CLIENT_BYTES, f"{cost.bytes_per_client} bytes a client")
    tally.ok = trials if cost.all_kept_alive else 0
    tally.note(clients=cost.clients, bytes_per_client=cost.bytes_per_client, open_seconds=cost.open_seconds)
    return tally


def _raise_file_limit(files: int) -> None:
    """For this process and those that it starts. Raises NotHere."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= files:
        return
    if hard != resource.RLIM_INFINITY and hard < files:
        raise NotHere(f"a process may have {hard} open files, {files} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))


_VANISHING = """
import socket, sys
request = sys.stdin.buffer.read()
sockets = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(int(sys.argv[2]))]
for one in sockets:
    one.sendall(request)
    assert one.recv(64).startswith(b"HTTP/1.1 200")
print("open", flush=True)
sockets[0].recv(1 << 30) and all(iter(lambda: sockets[0].recv(1 << 20), b""))
"""


@case(58, "Clients vanish without a FIN", seconds=240)
async def vanished(bed: Bed, rng: Random, trials: int) -> Tally:
    """Their connections are gone from the gateway at most 60 s later."""
    tally = Tally()
    client = rng.choice(bed.clients)
    session = await client.create("/api/sessions", {"agent_id": bed.agents[bed.clients.index(client)]})
    request = _request(client, str(session["id"]))
    count = 10 * trials
    async with Namespace(bed.ports()) as namespace:
        await bed.kill("gateway-0")
        await bed.start("gateway-0", within=namespace.command)
        await namespace.ready(bed, "gateway-0")
        service = bed.services["gateway-0"]
        async with _clients_inside(namespace, service.port, count, request):
            open_before = _connections(service.pid, service.port)
            tally.require(open_before >= count, f"{open_before} connections of {count}")
            await namespace.drop(service.port)
            began = time.monotonic()

            async def are_gone() -> bool:
                return _connections(service.pid, service.port) == 0

            await eventually(are_gone, within=VANISHED_SECONDS + 20, every=0.5)
            took = time.monotonic() - began
    tally.attempted = tally.acknowledged = tally.ok = count
    tally.require(took <= VANISHED_SECONDS, f"they were gone after {took:.0f} s")
    tally.note(clients=count, freed_seconds=round(took, 1))
    return tally


@asynccontextmanager
async def _clients_inside(namespace: Namespace, port: int, count: int, request: bytes) -> AsyncIterator[None]:
    """So many open streams from within a namespace."""
    pipe = asyncio.subprocess.PIPE
    command = [*namespace.command, sys.executable, "-c", _VANISHING, str(port), str(count)]
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(request)
        process.stdin.close()
        line = await asyncio.wait_for(process.stdout.readline(), 30)
        assert line == b"open\n", line
        yield
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _connections(pid: int, port: int) -> int:
    """Open connections to a port, in the network namespace of a process."""
    lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    fields = (line.split() for line in lines)
    return sum(local.endswith(f":{port:04X}") and state == _ESTABLISHED for _, local, _, state, *_ in fields)
