"""More work than there is room for: one tenant's backlog and another's first event, and five times what the system can do."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import httpx
import psutil

from shared.ids import new_id
from tests.faults.bed import Bed
from tests.faults.catalogue import case
from tests.faults.client import TenantClient
from tests.faults.clock import lasts
from tests.faults.conversation import Conversation, conversation, new_wish
from tests.faults.tally import Tally
from tests.support.stack import ServiceProcess
from tests.support.waiting import eventually

DOCUMENTS = 10_000
RUNS = 500
QUESTIONS = 100
FILES_A_REQUEST = 20
RATIO = 1.5
OVERLOAD = 5
POSTERS = 100
RUNS_PER_TENANT = 500
_MIB = 1024 * 1024
_UNFINISHED = "SELECT count(*) FROM run WHERE id::text = ANY ($1) AND status <> 'finished'"


@case(79, "A tenant with 10,000 documents and 500 runs waiting doesn't hold up another's first event", seconds=900)
async def fairness(bed: Bed, rng: Random, trials: int) -> Tally:
    tally = Tally()
    crowd, lone = bed.clients[0], bed.clients[1]
    async with conversation(lone, tally) as talk:
        idle = await first_event_seconds(talk)
        base = await crowd.create("/api/knowledge-bases", {"name": "Backlog"})
        await fill_with_documents(crowd, str(base["id"]))
        runs = await fill_with_runs(bed, crowd)
        waiting = await bed.fetchval("SELECT count(*) FROM run WHERE status = 'queued'")
        unread = await bed.fetchval("SELECT count(*) FROM document WHERE state NOT IN ('ready', 'failed')")
        busy = await first_event_seconds(talk)
    tally.note(
        idle_p50_ms=_ms(idle, 0.5), idle_p95_ms=_ms(idle, 0.95), busy_p50_ms=_ms(busy, 0.5), busy_p95_ms=_ms(busy, 0.95),
        ratio=round(_ms(busy, 0.95) / _ms(idle, 0.95), 2), runs_waiting=waiting, documents_waiting=unread,
    )  # fmt: skip
    tally.require(unread > DOCUMENTS // 2, f"only {unread} documents were waiting")
    tally.require(waiting > 0, "no runs were waiting")
    tally.require(
        _ms(busy, 0.95) <= RATIO * _ms(idle, 0.95), "the first event came later than 1.5 times as on an idle system"
    )
    await crowd.call("DELETE", f"/api/knowledge-bases/{base['id']}")
    await all_end(bed, runs, tally, within=180)
    return tally


async def first_event_seconds(talk: Conversation) -> list[float]:
    """Seconds from each of some questions, one after the other, to the event that a runner works on it."""
    seconds = []
    for _ in range(QUESTIONS):
        wish = new_wish(talk.client)
        began = time.monotonic()
        run_id = await talk.say(wish)

        async def begun(run_id: str = run_id) -> bool:
            return bool(talk.states_of(run_id))

        await eventually(begun, within=60, every=0.001)
        seconds.append(time.monotonic() - began)
        await talk.expect(run_id, wish)
    return seconds


async def fill_with_documents(client: TenantClient, base_id: str) -> None:
    """DOCUMENTS small ones, some requests at a time."""
    gate = asyncio.Semaphore(4)

    async def upload(first: int) -> None:
        parts = [
            (
                "files",
                (f"{first + number}.md", f"# Note {first + number}\n\n{new_id().hex}\n".encode(), "text/markdown"),
            )
            for number in range(FILES_A_REQUEST)
        ]
        async with gate:
            response = await client.call("POST", f"/api/knowledge-bases/{base_id}/documents", files=parts, patience=300)
            assert response.status_code == 202, response.text

    await asyncio.gather(*(upload(first) for first in range(0, DOCUMENTS, FILES_A_REQUEST)))


async def fill_with_runs(bed: Bed, client: TenantClient) -> list[str]:
    """RUNS runs of twenty seconds each, in sessions of their own; their ids."""
    agent = bed.agents[bed.clients.index(client)]
    gate = asyncio.Semaphore(16)

    async def ask() -> str:
        async with gate:
            session = await client.create("/api/sessions", {"agent_id": agent})
            content = new_wish(client, text="slow " * 20, delay_ms=1500, chunk_chars=8).in_words("please")
            path = f"/api/sessions/{session['id']}/messages"
            response = await client.call("POST", path, json={"content": content}, patience=120)
            assert response.status_code == 202, response.text
            return str(response.json()["run"]["id"])

    return list(await asyncio.gather(*(ask() for _ in range(RUNS))))


async def all_end(bed: Bed, runs: list[str], tally: Tally, within: float) -> None:
    """All of these runs end."""

    async def none_left() -> bool:
        return bool(await bed.fetchval(_UNFINISHED, runs) == 0)

    tally.attempted += len(runs)
    tally.acknowledged += len(runs)
    try:
        await eventually(none_left, within=within, every=0.5)
        tally.ok += len(runs)
    except AssertionError:
        left = await bed.fetchval(_UNFINISHED, runs)
        tally.lost += left
        tally.ok += len(runs) - left


def _ms(seconds: list[float], fraction: float) -> float:
    ordered = sorted(seconds)
    return round(ordered[min(int(fraction * len(ordered)), len(ordered) - 1)] * 1000, 1)


@case(
    80,
    "Five times the capacity (TRIALS seconds of it): refused with 429, memory bounded, what was accepted ends",
    trials=45,
    seconds=1200,
)
async def overload(bed: Bed, rng: Random, trials: int) -> Tally:
    tally = Tally()
    for name in bed.names("gateway"):
        await bed.restart(name, CHATMIND_LIMITS__RUNS_PER_TENANT=str(RUNS_PER_TENANT))
    for name in bed.names("runner"):  # few slots, so that a small machine can be asked for five times what it does
        await bed.restart(name, CHATMIND_JOBS__SLOTS="2")
    sessions = [
        (client, str((await client.create("/api/sessions", {"agent_id": agent}))["id"]))
        for client, agent in zip(bed.clients, bed.agents, strict=True)
        for _ in range(40)
    ]
    rate = await capacity(sessions)
    accepted: list[str] = []
    statuses = Counter[int]()
    async with memory_watched(bed, tally):
        ends = time.monotonic() + trials
        every = POSTERS / (rate * OVERLOAD)

        async def post_on() -> None:
            while time.monotonic() < ends:
                began = time.monotonic()
                await _post(*rng.choice(sessions), accepted, statuses)
                await lasts(max(0.0, every - (time.monotonic() - began)))

        await asyncio.gather(*(post_on() for _ in range(POSTERS)))
        await all_end(bed, accepted, tally, within=300)
    tally.attempted = statuses.total()
    tally.note(
        capacity_runs_per_second=round(rate, 1),
        offered_per_second=round(statuses.total() / trials, 1),
        statuses=dict(statuses),
    )
    tally.require(statuses[429] > 0, "nothing was refused")
    strange = set(statuses) - {202, 429, 503, -1}  # -1: a kept connection that ended as it was used again
    tally.require(not strange, f"answers with {strange}")
    return tally


async def capacity(sessions: list[tuple[TenantClient, str]], seconds: float = 15) -> float:
    """Runs a second, by clients that wait for each answer."""
    ends = time.monotonic() + seconds

    async def talk(client: TenantClient, session_id: str) -> int:
        done = 0
        while time.monotonic() < ends:
            body = {"content": _slow(client)}
            run = (await client.call("POST", f"/api/sessions/{session_id}/messages", json=body)).json()["run"]
            while (await client.call("GET", f"/api/runs/{run['id']}")).json()["finished_at"] is None:
                await lasts(0.05)
            done += 1
        return done

    return sum(await asyncio.gather(*(talk(*session) for session in sessions[::4]))) / seconds


def _slow(client: TenantClient) -> str:
    """A message whose answer takes a third of a second."""
    return new_wish(client, delay_ms=80, chunk_chars=24).in_words("more")


async def _post(client: TenantClient, session_id: str, accepted: list[str], statuses: Counter[int]) -> None:
    body = {"content": _slow(client)}
    try:
        response = await client.any_gateway().post(f"/api/sessions/{session_id}/messages", json=body)
    except httpx.HTTPError:
        statuses[-1] += 1
        return
    statuses[response.status_code] += 1
    client.inspect(response.status_code, response.text)
    if response.status_code == 202:
        accepted.append(str(response.json()["run"]["id"]))
    elif response.status_code == 429 and "retry-after" not in response.headers:
        statuses[-429] += 1


@asynccontextmanager
async def memory_watched(bed: Bed, tally: Tally) -> AsyncIterator[None]:
    """What each service holds at most, and whether it still grows: the last quarter of the time against the second."""
    samples: dict[str, list[float]] = {name: [] for name in bed.services}

    async def watch() -> None:
        while True:
            for name, service in bed.services.items():
                samples[name].append(_resident(service))
            await lasts(1)

    watching = asyncio.ensure_future(watch())
    try:
        yield
    finally:
        watching.cancel()
    for name, megabytes in samples.items():
        quarter = max(len(megabytes) // 4, 1)
        early, late = max(megabytes[quarter : 2 * quarter + 1]), max(megabytes[-quarter:])
        tally.note(**{f"{name}_mib": f"{megabytes[0]:.0f} -> {max(megabytes):.0f}"})
        tally.require(late <= early * 1.25 + 10, f"{name} grows: {early:.0f} MiB, later {late:.0f} MiB")


def _resident(service: ServiceProcess) -> float:
    try:
        process = psutil.Process(service.pid)
        return sum(one.memory_info().rss for one in (process, *process.children(recursive=True))) / _MIB
    except psutil.Error:
        return 0.0
