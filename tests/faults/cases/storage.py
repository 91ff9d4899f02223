"""What the database has too little of: connections, unlocked rows, room; and vectors that are none. Cases 39 to 42."""

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import httpx

from deploy.local.errors import StackError
from tests.faults.bed import Bed
from tests.faults.catalogue import case
from tests.faults.client import TenantClient
from tests.faults.clock import lasts
from tests.faults.conversation import Conversation, conversation, create_agent, new_wish
from tests.faults.documents import Library
from tests.faults.model import Wish
from tests.faults.outage import ACCEPTED_OR_REFUSED, posting
from tests.faults.tally import NotHere, Tally
from tests.support.embedding_server import Answer

POOL_SECONDS = 15.0
LOCK_SECONDS = 10.0
"""A request waits for its session 5 s at most, then 2 s for its row."""
ROOM_MIB = 192
MIB = 2**20


@case(39, "200 requests at once, a pool of 5 connections")
async def small_pool(bed: Bed, rng: Random, trials: int) -> Tally:
    """All are answered in time, with 503 at worst, and no connection is lost."""
    tally = Tally()
    await bed.restart("gateway-0", CHATMIND_POOL__MAX_SIZE="5")
    client = rng.choice(bed.clients)
    agent_id = await create_agent(client)
    for _ in range(trials):
        async with conversation(client, tally, agent_id) as talk, conversation(client, tally, agent_id) as other:
            jobs = [_once(talk if n % 2 else other, new_wish(client), POOL_SECONDS) for n in range(100)]
            reads = [client.gateways[0].get(f"/api/sessions/{talk.session_id}/messages") for _ in range(100)]
            asked, answers = await asyncio.gather(asyncio.gather(*jobs), asyncio.gather(*reads))
            for answer in answers:
                client.inspect(answer.status_code, answer.text)
                tally.require(answer.status_code in (200, 503), f"{answer.status_code} {answer.text[:200]}")
            for where, run_id, wish in asked:
                if run_id is not None:
                    await where.expect(run_id, wish)
        before = time.monotonic()
        answer = await client.gateways[0].get("/api/agents")
        took = time.monotonic() - before
        tally.require(answer.status_code == 200 and took < 1, f"{answer.status_code} after {took:.1f} s of rest")
        tally.note(refused=sum(run_id is None for _, run_id, _ in asked))
    return tally


async def _once(talk: Conversation, wish: Wish, limit: float) -> tuple[Conversation, str | None, Wish]:
    """One POST to the first gateway, answered within a limit; None for the run when it was refused."""
    talk.tally.attempted += 1
    began = time.monotonic()
    path, body = f"/api/sessions/{talk.session_id}/messages", {"content": wish.in_words("once")}
    answer = await talk.client.gateways[0].post(path, json=body)
    took = time.monotonic() - began
    talk.client.inspect(answer.status_code, answer.text)
    talk.tally.require(answer.status_code in ACCEPTED_OR_REFUSED, f"{answer.status_code} {answer.text[:200]}")
    talk.tally.require(took <= limit, f"an answer took {took:.1f} s")
    if answer.status_code != 202:
        return talk, None, wish
    talk.tally.acknowledged += 1
    talk.accepted.append(str(answer.json()["run"]["id"]))
    return talk, talk.accepted[-1], wish


@case(40, "A session's row is locked by somebody else for 30 s")
async def locked_row(bed: Bed, rng: Random, trials: int) -> Tally:
    """Requests to that session are refused in time; its run and all others go on."""
    tally = Tally()
    for trial in range(trials):
        client = rng.choice(bed.clients)
        async with conversation(client, tally) as talk, conversation(client, tally) as other:
            gate = f"locked-{trial}"
            running = new_wish(client, gate=gate)
            run_id = await talk.say(running)
            await bed.model.someone_at(gate)
            async with _locked(bed, talk.session_id):
                bed.model.open(gate)
                began = time.monotonic()
                asked = [await _once(talk, new_wish(client), LOCK_SECONDS) for _ in range(2)]
                while time.monotonic() - began < 30:
                    wish = new_wish(client)
                    before = time.monotonic()
                    await other.expect(await other.say(wish), wish, within=20)
                    took = time.monotonic() - before
                    tally.require(took < 5, f"another session's answer took {took:.1f} s")
                    await lasts(1)
            tally.require(all(run is None for _, run, _ in asked), "a message was accepted past the lock")
            await talk.expect(run_id, running)
            wish = new_wish(client)
            await talk.expect(await talk.say(wish), wish)
            tally.recovered += 1
    return tally


@asynccontextmanager
async def _locked(bed: Bed, session_id: str) -> AsyncIterator[None]:
    connection = await bed.connect()
    try:
        async with connection.transaction():
            await connection.execute("SELECT FROM chat_session WHERE id = $1::text::uuid FOR UPDATE", session_id)
            yield
    finally:
        await connection.close()


@case(41, "The disk of PostgreSQL is full", seconds=300)
async def disk_full(bed: Bed, rng: Random, trials: int) -> Tally:
    """Requests are refused with a code, and everything goes on when there is room again."""
    tally = Tally()
    for _ in range(trials):
        async with _small_disk(bed) as ballast:
            async with posting(bed, rng, tally, seconds=25, limit=LOCK_SECONDS):
                await asyncio.to_thread(_fill, ballast)
                refused = await _refusals(rng.choice(bed.clients), tally)
                await lasts(8)
                tally.note(refused=refused)
                ballast.unlink()
                if not bed.stack.postgres.is_running():  # PostgreSQL ends itself when it can't write its log
                    tally.note(postgres="ended")
                    await asyncio.to_thread(bed.stack.postgres.start)
                await bed.ready()
            client = rng.choice(bed.clients)
            async with conversation(client, tally) as talk:
                wish = new_wish(client)
                await talk.expect(await talk.say(wish), wish)
            tally.recovered += 1
    return tally


async def _refusals(client: TenantClient, tally: Tally) -> int:
    """Makes things until the disk refuses them, for 15 s at most; how many were refused."""
    refused = 0
    ends = time.monotonic() + 15
    while time.monotonic() < ends and refused < 20:
        body = {"name": "Large", "system_prompt": os.urandom(40_000).hex()}
        try:
            answer = await client.any_gateway().post("/api/agents", json=body)
        except httpx.HTTPError as error:
            tally.surprise(f"a POST failed: {type(error).__name__}")
            break
        client.inspect(answer.status_code, answer.text)
        tally.require(answer.status_code in (201, 503), f"{answer.status_code} {answer.text[:200]}")
        refused += answer.status_code == 503
    tally.require(refused, "the disk was never full")
    return refused


@asynccontextmanager
async def _small_disk(bed: Bed) -> AsyncIterator[Path]:
    """The database's directory on a file system with little room; a path on it. Raises NotHere."""
    postgres = bed.stack.postgres
    kept = postgres.directory / "data.kept"
    await asyncio.to_thread(postgres.stop)
    try:
        await asyncio.to_thread(_move_to_small_disk, postgres.data, kept)
    except subprocess.CalledProcessError as error:
        await asyncio.to_thread(postgres.start)
        raise NotHere(f"may not mount a file system ({error.stderr.strip()[-200:]})") from None
    try:
        await asyncio.to_thread(postgres.start)
        await bed.ready()
        yield postgres.data / "ballast"
    finally:
        await asyncio.to_thread(postgres.kill)
        await asyncio.to_thread(_move_back, postgres.data, kept)
        await asyncio.to_thread(_start, bed)


def _start(bed: Bed) -> None:
    try:
        bed.stack.postgres.start()
    except StackError as error:
        raise AssertionError(f"PostgreSQL does not start on the disk that was full: {error}") from None


def _move_to_small_disk(data: Path, kept: Path) -> None:
    size = sum(file.stat().st_size for file in data.rglob("*") if file.is_file())
    data.rename(kept)
    data.mkdir()
    try:
        _run("mount", "-t", "tmpfs", "-o", f"size={size + ROOM_MIB * MIB}", "tmpfs", str(data))
    except subprocess.CalledProcessError:
        data.rmdir()
        kept.rename(data)
        raise
    _run("cp", "-a", f"{kept}/.", str(data))


def _move_back(data: Path, kept: Path) -> None:
    shutil.rmtree(kept)
    (data / "ballast").unlink(missing_ok=True)
    _run("cp", "-a", str(data), str(kept))
    _run("umount", "--lazy", str(data))
    data.rmdir()
    kept.rename(data)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def _fill(ballast: Path) -> None:
    """Writes until there is no room left."""
    try:
        with ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(MIB // 16))
    except OSError:
        return


@case(42, "Embeddings that are NaN, zero, too few, too long, numbered twice", quick=True)
async def invalid_embeddings(bed: Bed, rng: Random, trials: int) -> Tally:
    """The document fails with embedding_invalid and leaves nothing; asked again it becomes ready. Another order is no fault."""
    tally = Tally()
    client = rng.choice(bed.clients)
    library = await Library.found(client, (3,))
    wrong: tuple[Answer, ...] = ("nan", "zero", "wrong_dimension", "fewer", "twice_the_same_index")
    for _ in range(trials):
        failed = []
        for bed.embeddings.answer in wrong:
            document = await library.settled(await library.upload(3))
            tally.attempted += 1
            tally.acknowledged += 1
            outcome = (document["state"], document["error"] and document["error"]["code"], document["chunk_count"])
            if outcome != ("failed", "embedding_invalid", 0):
                tally.surprise(f"{bed.embeddings.answer}: {outcome}")
            count = await bed.fetchval("SELECT count(*) FROM chunk WHERE document_id = $1::text::uuid", document["id"])
            tally.require(count == 0, f"{bed.embeddings.answer}: {count} chunks are stored")
            failed.append(document["id"])
        bed.embeddings.answer = "shuffled"
        failed.append(await library.upload(3))
        tally.attempted += 1
        tally.acknowledged += 1
        await library.settled(failed[-1])
        bed.embeddings.answer = "right"
        for document_id in failed[:-1]:
            answer = await client.call("POST", f"/api/documents/{document_id}/retry")
            tally.require(answer.status_code == 202, answer.text[:200])
        for document_id in failed:
            await library.expect(document_id, tally)
        tally.recovered += len(wrong)
    return tally
