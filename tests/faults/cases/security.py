"""Keys and tenants: cases 63 to 66."""

import asyncio
import time
from base64 import b64encode
from collections.abc import Iterator
from datetime import timedelta
from random import Random
from typing import Any

import asyncpg
import httpx
import psutil

from services.gateway.store.api_keys import generate_key, issue_key, revoke_key
from shared.ids import new_id
from tests.faults.bed import Bed
from tests.faults.catalogue import case
from tests.faults.client import TenantClient
from tests.faults.clock import lasts
from tests.faults.conversation import Conversation, conversation, create_agent, new_wish
from tests.faults.documents import Library
from tests.faults.tally import Tally
from tests.support.scripted_replies import ScriptedCall
from tests.support.sse import open_stream

END_OF_KEY_SECONDS = 60.0
RATE, BURST, RATE_SECONDS = 20.0, 20, 12.0

# A valid request where a route wants a body. A new route with an id and a body must be given one here.
_FILE = ("mine.md", b"# Mine", "text/markdown")
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("PATCH", "/api/agents/{agent_id}"): {"json": {"name": "mine"}},
    ("PATCH", "/api/sessions/{session_id}"): {"json": {"title": "mine"}},
    ("PATCH", "/api/knowledge-bases/{knowledge_base_id}"): {"json": {"name": "mine"}},
    ("POST", "/api/sessions/{session_id}/messages"): {"json": {"content": "mine"}},
    ("POST", "/api/runs/{run_id}/steps/{n}/resolve"): {"json": {"outcome": "done"}},
    ("POST", "/api/knowledge-bases/{knowledge_base_id}/search"): {"json": {"query": "mine"}},
    ("POST", "/api/knowledge-bases/{knowledge_base_id}/documents"): {"files": {"files": _FILE}},
    ("PATCH", "/api/documents/{document_id}"): {"json": {"tags": ["mine"]}},
    ("PUT", "/api/documents/{document_id}/content"): {"files": {"file": _FILE}},
}


async def routes_of(client: TenantClient) -> list[tuple[str, str]]:
    """Methods and paths under /api, as the running system describes itself."""
    paths = (await client.call("GET", "/openapi.json")).json()["paths"]
    return sorted((method.upper(), path) for path, item in paths.items() if path.startswith("/api/") for method in item)


async def _property_of(client: TenantClient, talk: Conversation) -> dict[str, str]:
    """The ids of one of everything, with a run that has searched, by their names in paths."""
    library = await Library.found(client, (1,))
    documents = await client.items(f"/api/knowledge-bases/{library.base_id}/documents")
    agent_id = await create_agent(client, knowledge_base_ids=[library.base_id], name=client.canary)
    wish = new_wish(client, calls=[[ScriptedCall(name="CurrentTimeTool")]])
    run_id = await talk.say(wish)
    await talk.expect(run_id, wish)
    ids = {"knowledge_base_id": library.base_id, "document_id": str(documents[0]["id"])}
    ids["chunk_id"] = str((await client.items(f"/api/documents/{ids['document_id']}/chunks"))[0]["id"])
    return {**ids, "agent_id": agent_id, "session_id": talk.session_id, "run_id": run_id}


async def _state_of(client: TenantClient, ids: dict[str, str]) -> list[Any]:
    paths = [
        "/api/agents",
        "/api/sessions",
        "/api/knowledge-bases",
        f"/api/sessions/{ids['session_id']}/messages",
        f"/api/runs/{ids['run_id']}/steps",
        f"/api/knowledge-bases/{ids['knowledge_base_id']}/documents",
    ]
    return [await client.items(path) for path in paths]


@case(63, "Another tenant's ids on every route of both gateways", quick=True)
async def foreign_ids(bed: Bed, rng: Random, trials: int) -> Tally:
    """Exactly the answer that ids get which do not exist, and nothing has changed."""
    tally = Tally()
    for _ in range(trials):
        owner, stranger = rng.sample(bed.clients, 2)
        async with conversation(owner, tally) as talk:
            ids = await _property_of(owner, talk)
            unknown = {name: str(new_id()) for name in ids}
            before = await _state_of(owner, ids)
            routes = [route for route in await routes_of(owner) if "{" in route[1]]
            for number, (method, path) in enumerate(routes):
                gateway, request = stranger.gateways[number % 2], BODIES.get((method, path), {})
                answers = [await gateway.request(method, path.format(n=1, **at), **request) for at in (ids, unknown)]
                for answer in answers:
                    stranger.inspect(answer.status_code, answer.text)
                status = answers[0].status_code
                tally.require(status == 404, f"{method} {path}: {status} {answers[0].text[:200]}")
                tally.require(answers[0].content == answers[1].content, f"{method} {path} tells that an id exists")
            tally.require(await _state_of(owner, ids) == before, "a stranger has changed something")
            tally.note(routes=len(routes))
    return tally


@case(64, "No, wrong, revoked and expired keys on every route; a key revoked in mid-stream", seconds=240)
async def keys(bed: Bed, rng: Random, trials: int) -> Tally:
    """401 everywhere; a stream ends at most 60 s after its key does."""
    tally = Tally()
    connection = await bed.connect()
    try:
        for _ in range(trials):
            client = rng.choice(bed.clients)
            expired = await issue_key(connection, client.tenant, "expired", timedelta(seconds=1))
            revoked = await issue_key(connection, client.tenant, "revoked")
            bed.secrets += [expired, revoked]
            ended = await _revoked_in_mid_stream(bed, client, connection, revoked)
            tally.note(stream_ended_seconds=round(ended, 1))
            tally.require(ended <= END_OF_KEY_SECONDS, f"the stream went on for {ended:.0f} s")
            for key in (None, "", "wrong", generate_key(), expired, revoked):
                await _refused_everywhere(client, tally, key)
    finally:
        await connection.close()
    return tally


async def _revoked_in_mid_stream(
    bed: Bed, client: TenantClient, connection: "asyncpg.Connection[asyncpg.Record]", key: str
) -> float:
    """Seconds from the end of a key to the end of its stream."""
    session = await client.create("/api/sessions", {"agent_id": bed.agents[bed.clients.index(client)]})
    async with httpx.AsyncClient(
        base_url=client.gateways[0].base_url, headers={"Authorization": f"Bearer {key}"}
    ) as holder:
        async with open_stream(holder, f"/api/sessions/{session['id']}/events") as stream:
            assert await revoke_key(connection, key)
            began = time.monotonic()
            async for _ in stream:
                pass
        return time.monotonic() - began


async def _refused_everywhere(client: TenantClient, tally: Tally, key: str | None) -> None:
    names = ("agent_id", "session_id", "run_id", "knowledge_base_id", "document_id", "chunk_id")
    ids = {name: str(new_id()) for name in names}
    headers = {} if key is None else {"Authorization": f"Bearer {key}".strip()}
    async with httpx.AsyncClient() as http:
        for method, path in await routes_of(client):
            for gateway in client.gateways:
                url = f"{str(gateway.base_url).rstrip('/')}{path.format(n=1, **ids)}"
                answer = await http.request(method, url, headers=headers)
                client.inspect(answer.status_code, answer.text)
                is_refused = answer.status_code == 401 and answer.json()["code"] == "unauthorized"
                tally.require(is_refused, f"{method} {path}: {answer.status_code} {answer.text[:200]}")


@case(65, "Secrets in the database, in logs and in lists of processes")
async def secrets(bed: Bed, rng: Random, trials: int) -> Tally:
    """No key of a client, a model or a tool, no password, neither as it is nor in Base64 or hex, since the bed was made."""
    tally = Tally()
    wanted = {form: number for number, secret in enumerate(bed.secrets) for form in _forms(secret)}
    places = 0
    for place, text in [*_logs(bed), *await _tables(bed)]:
        places += 1
        for form in (form for form in wanted if form in text):
            tally.surprise(f"secret number {wanted[form]} is in {place}")
    for name, service in bed.services.items():
        told = " ".join(psutil.Process(service.pid).cmdline())
        tally.require(not any(form in told for form in wanted), f"a secret is in the command line of {name}")
    tally.require(places > 20, f"only {places} places were searched")
    tally.note(places=places, secrets=len(bed.secrets))
    return tally


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield secret.encode().hex()
    # In front of what follows it, the last characters of Base64 differ.
    yield b64encode(secret.encode()).decode()[: len(secret) * 4 // 3 - 3]


def _logs(bed: Bed) -> Iterator[tuple[str, str]]:
    for path in bed.stack.directory.rglob("*.log"):
        yield path.name, path.read_text(errors="replace")


async def _tables(bed: Bed) -> list[tuple[str, str]]:
    """Every table as text."""
    connection = await bed.connect()
    try:
        rows = await connection.fetch(
            "SELECT quote_ident(tablename) AS name FROM pg_tables WHERE schemaname = 'public'"
        )
        found = []
        for row in rows:
            lines = await connection.fetch(f"SELECT t::text AS line FROM {row['name']} t")
            found.append((row["name"], "\n".join(line["line"] for line in lines)))
        return found
    finally:
        await connection.close()


@case(66, "The rate limit over two gateways, with forged headers")
async def rate_limit(bed: Bed, rng: Random, trials: int) -> Tally:
    """What is let through is what one gateway would let through, give or take a tenth; another tenant notices nothing."""
    tally = Tally()
    setting = {"CHATMIND_RATE__PER_SECOND": str(RATE), "CHATMIND_RATE__BURST": str(BURST)}
    await asyncio.gather(*(bed.restart(name, **setting) for name in bed.names("gateway")))
    for _ in range(trials):
        greedy, modest = rng.sample(bed.clients, 2)
        began = time.monotonic()
        ends = began + RATE_SECONDS
        counts = await asyncio.gather(*(_ask_on(greedy, rng, n % 2, ends, tally) for n in range(8)))
        let_through, refused = sum(count[0] for count in counts), sum(count[1] for count in counts)
        tally.attempted += let_through + refused
        tally.acknowledged += let_through
        tally.ok += let_through
        expected = BURST + RATE * (time.monotonic() - began)
        tally.require(
            abs(let_through - expected) <= expected / 10, f"{let_through} let through, {expected:.0f} expected"
        )
        tally.require(refused > let_through / 2, f"only {refused} were refused")
        answer = await modest.gateways[0].get("/api/agents")
        tally.require(answer.status_code == 200, f"another tenant: {answer.status_code}")
        tally.note(let_through=let_through, expected=round(expected), refused=refused)
    return tally


async def _ask_on(client: TenantClient, rng: Random, gateway: int, ends: float, tally: Tally) -> tuple[int, int]:
    let_through = refused = 0
    while time.monotonic() < ends:
        address = ".".join(str(rng.randrange(1, 255)) for _ in range(4))
        forged = {"X-Forwarded-For": address, "Forwarded": f"for={address}", "X-Real-IP": address}
        answer = await client.gateways[gateway].get("/api/agents?limit=1", headers=forged)
        let_through += answer.status_code == 200
        refused += answer.status_code == 429
        tally.require(answer.status_code in (200, 429), f"{answer.status_code} {answer.text[:200]}")
        tally.require(answer.status_code == 200 or int(answer.headers["Retry-After"]) >= 1, "no Retry-After")
        await lasts(0.04)
    return let_through, refused
