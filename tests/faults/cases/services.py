"""Gateways, ingestion, retrieval and relays die and stop, alone and all together: cases 7 to 12, 15 and 16."""

import asyncio
import time
from contextlib import AsyncExitStack
from datetime import datetime
from random import Random

import httpx

from shared.ids import new_id
from tests.faults.bed import SQL, Bed
from tests.faults.cases.runners import epoch_of
from tests.faults.catalogue import case
from tests.faults.clock import lasts
from tests.faults.conversation import Conversation, conversation, new_wish
from tests.faults.documents import Library
from tests.faults.load import background_load
from tests.faults.tally import Tally


@case(7, "SIGKILL a gateway after the commit, before the response", trials=3, quick=True)
async def before_the_response(bed: Bed, rng: Random, trials: int) -> Tally:
    """The client that comes again with its Idempotency-Key gets the run that was accepted, and there is no other."""
    tally = Tally()
    for _ in range(trials):
        await bed.restart("gateway-0", CHATMIND_FAILPOINT="message_committed=kill")
        client = rng.choice(bed.clients)
        async with conversation(client, tally) as talk:
            wish = new_wish(client)
            path, key = f"/api/sessions/{talk.session_id}/messages", {"Idempotency-Key": str(new_id())}
            body = {"content": wish.in_words("once")}
            try:
                answer = await client.gateways[0].post(path, json=body, headers=key)
                tally.surprise(f"the dying gateway answered {answer.status_code}")
            except httpx.HTTPError:
                pass
            tally.attempted += 1
            again = await client.call("POST", path, json=body, headers=key, gateway=1)
            tally.acknowledged += 1
            run_id = again.json()["run"]["id"]
            talk.accepted.append(run_id)
            runs = await bed.fetch("SELECT id::text FROM run WHERE session_id = $1::text::uuid", talk.session_id)
            tally.require([row["id"] for row in runs] == [run_id], f"{run_id} was answered, {runs} are there")
            await talk.expect(run_id, wish)
            tally.recovered += 1
    return tally


@case(8, "SIGKILL a gateway with 50 clients on it")
async def gateway_with_clients(bed: Bed, rng: Random, trials: int) -> Tally:
    """All go on at the other one, with every event once."""
    tally = Tally()
    for _ in range(trials):
        async with AsyncExitStack() as stack:
            talks = [await _talk_at(stack, bed, number, tally) for number in range(50)]
            asked = []
            for talk in talks:
                wish = new_wish(talk.client, delay_ms=300)
                asked.append((talk, wish, await talk.say(wish)))
            await bed.kill("gateway-0")
            for talk, wish, run_id in asked:
                await talk.expect(run_id, wish)
            tally.recovered += sum(talk.reconnects > 0 for talk in talks)
            tally.require(tally.recovered >= 50, f"only {tally.recovered} clients were on that gateway")
        await bed.start("gateway-0")
        await bed.ready("gateway-0")
    return tally


async def _talk_at(stack: AsyncExitStack, bed: Bed, number: int, tally: Tally) -> Conversation:
    talk = await stack.enter_async_context(
        conversation(bed.clients[number % len(bed.clients)], tally, bed.agents[number % len(bed.agents)], at=0)
    )
    await talk.connected()
    return talk


STAGES = ("document_claimed", "document_parsed", "document_embedded", "document_swapping", "document_swapped")


@case(9, "SIGKILL ingestion at each stage", seconds=420)
async def ingestion_at_each_stage(bed: Bed, rng: Random, trials: int) -> Tally:
    """The document becomes ready with exactly its chunks, and nothing is left over."""
    tally = Tally()
    library = await Library.found(rng.choice(bed.clients), (6,))
    for stage in STAGES * trials:
        await bed.restart("ingestion-0", CHATMIND_FAILPOINT=f"{stage}=kill")
        document_id = await _upload(library, tally)
        await bed.died("ingestion-0")
        await bed.start("ingestion-0")
        await library.expect(document_id, tally)
        tally.recovered += 1
    for _ in range(trials):  # in the middle of embedding
        bed.embeddings.hold_after(0)
        document_id = await _upload(library, tally)
        await asyncio.wait_for(bed.embeddings.held.wait(), 30)
        await bed.kill("ingestion-0")
        bed.embeddings.release()
        await bed.start("ingestion-0")
        await library.expect(document_id, tally)
        tally.recovered += 1
    return tally


async def _upload(library: Library, tally: Tally) -> str:
    document_id = await library.upload(6)
    tally.attempted += 1
    tally.acknowledged += 1
    return document_id


@case(10, "SIGKILL retrieval with 20 questions in flight", trials=2, quick=True)
async def retrieval_with_questions(bed: Bed, rng: Random, trials: int) -> Tally:
    """Whoever asked has an answer, or an error that says to try again, within the deadline; trying again helps."""
    tally = Tally()
    client = rng.choice(bed.clients)
    library = await Library.found(client, (2,))
    path = f"/api/knowledge-bases/{library.base_id}/search"
    for _ in range(trials):
        bed.embeddings.hold_after(0)
        began = time.monotonic()
        questions = [
            asyncio.ensure_future(client.any_gateway().post(path, json={"query": f"value {number} {new_id()}"}))
            for number in range(20)
        ]
        await asyncio.wait_for(bed.embeddings.held.wait(), 10)
        await bed.kill("retrieval-0")
        bed.embeddings.release()
        answers = await asyncio.gather(*questions)
        took = time.monotonic() - began
        tally.attempted += len(answers)
        tally.require(took < 12, f"the last answer came after {took:.1f} s")
        for answer in answers:
            client.inspect(answer.status_code, answer.text)
            tally.require(answer.status_code in (200, 503), f"status {answer.status_code}")
        again = await client.call("POST", path, json={"query": "value"})
        tally.require(again.status_code == 200 and again.json()["hits"], f"afterwards: {again.text[:200]}")
        tally.acknowledged += sum(answer.status_code == 200 for answer in answers)
        tally.ok += sum(answer.status_code == 200 for answer in answers)
        await bed.start("retrieval-0")
        await bed.ready("retrieval-0")
    return tally


@case(11, "SIGKILL an outbox relay between the broker's confirm and the delete", trials=3)
async def relay_after_confirm(bed: Bed, rng: Random, trials: int) -> Tally:
    """The wake-up comes twice, the run does not."""
    tally = Tally()
    for _ in range(trials):
        for name in bed.names("gateway"):
            await bed.restart(name, CHATMIND_FAILPOINT="outbox_confirmed=kill")
        client = rng.choice(bed.clients)
        async with conversation(client, tally) as talk:
            wish = new_wish(client)
            posted = asyncio.ensure_future(talk.say(wish))
            await bed.died(*bed.names("gateway"))
            for name in bed.names("gateway"):
                await bed.restart(name)
            run_id = await posted
            await talk.expect(run_id, wish)
            epoch = await epoch_of(bed, run_id)
            tally.require(epoch == 1, f"claimed {epoch} times")
            tally.recovered += 1
    return tally


@case(12, "Random SIGKILLs of random services under load", trials=100, seconds=1800)
async def random_kills(bed: Bed, rng: Random, trials: int) -> Tally:
    """Nothing is lost, nothing happens twice; a run that a killed runner held goes on elsewhere, at the 95th percentile within 10 s."""
    tally = Tally()
    held: list[tuple[datetime, list[str]]] = []
    killed: dict[str, int] = {}
    async with background_load(bed, rng, tally, sessions=15):
        for _ in range(trials):
            await lasts(rng.uniform(0.3, 2.5))
            name = rng.choice(list(bed.services))
            runs = await bed.held_runs(name) if name.startswith("runner") else []
            killed_at = bed.now()
            await bed.kill(name)
            await bed.start(name)
            held.append((killed_at, runs))
            killed[name] = killed.get(name, 0) + 1
    for killed_at, runs in held:
        rows = await bed.fetch(SQL["claims_after"], runs, killed_at)
        tally.resume_seconds += [(row["at"] - killed_at).total_seconds() for row in rows]
    p95 = tally.percentile(0.95)
    tally.require(p95 is None or p95 <= 10, f"kill to resume: p95 is {p95} s")
    tally.note(killed=killed, held_runs=len(tally.resume_seconds), reached=max(tally.resume_seconds, default=0.0))
    return tally


@case(15, "SIGTERM a gateway with open event streams", trials=2, quick=True)
async def gateway_stops(bed: Bed, rng: Random, trials: int) -> Tally:
    """It exits within 10 s, sends its clients away, and they miss nothing."""
    tally = Tally()
    for _ in range(trials):
        async with AsyncExitStack() as stack:
            talks = [await _talk_at(stack, bed, number, tally) for number in range(15)]
            asked = []
            for talk in talks:
                wish = new_wish(talk.client, delay_ms=300)
                asked.append((talk, wish, await talk.say(wish)))
            began = time.monotonic()
            code = await bed.terminate("gateway-0")
            took = time.monotonic() - began
            tally.require(code == 0 and took <= 10, f"exit code {code} after {took:.1f} s")
            for talk, wish, run_id in asked:
                await talk.expect(run_id, wish)
            tally.recovered += sum(talk.reconnects > 0 for talk in talks)
            tally.note(exit_seconds=round(took, 1))
        await bed.start("gateway-0")
        await bed.ready("gateway-0")
    return tally


@case(16, "Rolling restart of everything under load", seconds=420)
async def rolling_restart(bed: Bed, rng: Random, trials: int) -> Tally:
    """No run fails, and nothing that a retry does not cure is answered."""
    tally = Tally()
    async with background_load(bed, rng, tally, sessions=10):
        for _ in range(trials):
            for name in bed.services:
                code = await bed.terminate(name)
                tally.require(code == 0, f"{name} ended with exit code {code}")
                await bed.start(name)
                await bed.ready(name)
    return tally
