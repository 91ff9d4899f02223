"""What is sent: durable, small, harmless when it comes again, set aside when it can't be read. Cases 20, 27 to 30, 32 and 34."""

import asyncio
import sys
from random import Random

import psutil

from shared.contracts.commands import ExecuteRun
from shared.conversation import post_message
from shared.db.pool import PoolSettings, open_pool
from shared.ids import new_id
from shared.topology import QUESTIONS
from tests.faults.bed import Bed
from tests.faults.cases.runners import RUNNERS, conversations, epoch_of
from tests.faults.catalogue import case
from tests.faults.clock import lasts
from tests.faults.conversation import conversation, create_agent, new_wish
from tests.faults.documents import Library
from tests.faults.load import background_load
from tests.faults.tally import Tally
from tests.faults.tap import broker_channel, depth, publish, tapped
from tests.support.scripted_replies import ScriptedCall
from tests.support.stack import REPOSITORY, clean_environment
from tests.support.waiting import eventually

MOST_BYTES = 256 * 1024
QUEUES = ("runs", "documents", "dead-letters", QUESTIONS)
EXCHANGES = ("hints", "dead-letters")
WORK_QUEUES = ("runs", "documents", "dead-letters")
_UNFINISHED_RUNS = """
SELECT tenant_id, session_id, id FROM run WHERE status <> 'finished' OR finished_at > now() - interval '2 seconds'
"""
UNREADABLE = {
    "empty": b"",
    "not JSON": b"\xff\xfe{",
    "not an object": b"[1]",
    "a missing field": b'{"schema_version": 1}',
    "a wrong type": b'{"schema_version": 1, "run_id": 7}',
    "an unknown version": b'{"schema_version": 99, "run_id": "00000000-0000-7000-8000-000000000000"}',
}


@case(20, "Every message on the wire")
async def on_the_wire(bed: Bed, rng: Random, trials: int) -> Tally:
    """Wake-ups are persistent and in durable queues; only hints, questions and replies are not."""
    tally = Tally()
    async with tapped(bed) as seen, background_load(bed, rng, tally, sessions=6):
        await lasts(4 * trials)
    durable = (await asyncio.to_thread(_list_durable, bed)).items()
    for name, is_durable in durable:
        tally.require(is_durable or name not in WORK_QUEUES, f"queue {name} is not durable")
    wake_ups = [message for message in seen if message.routing_key in WORK_QUEUES]
    tally.require(wake_ups, f"none of {len(seen)} messages is a wake-up")
    for message in seen:
        transient = message.exchange == "hints" or "repl" in message.exchange + message.routing_key
        allowed = message.persistent or transient or message.routing_key == QUESTIONS
        tally.require(allowed, f"not persistent: {message.exchange} {message.routing_key}")
    tally.note(messages=len(seen), wake_ups=len(wake_ups), largest=max(message.size for message in seen))
    return tally


def _list_durable(bed: Bed) -> dict[str, bool]:
    listed = bed.stack.rabbitmq.ctl("list_queues", "--vhost", bed.vhost, "--no-table-headers", "name", "durable")
    return {name: durable == "true" for name, durable in (line.split("\t") for line in listed.splitlines())}


@case(27, "Every wake-up published three times, shuffled")
async def three_times(bed: Bed, rng: Random, trials: int) -> Tally:
    """No run and no event more than there would be."""
    tally = Tally()
    count = 0
    async with broker_channel(bed) as channel, background_load(bed, rng, tally, sessions=8):
        for _ in range(15 * trials):
            rows = list(await bed.fetch(_UNFINISHED_RUNS)) * 3
            rng.shuffle(rows)
            for row in rows:
                command = ExecuteRun(tenant_id=row["tenant_id"], session_id=row["session_id"], run_id=row["id"])
                await publish(channel, "runs", command.model_dump_json().encode())
            count += len(rows)
            await lasts(0.5)
    tally.require(tally.recovered == 0, f"{tally.recovered} runs were claimed twice")
    tally.note(wake_ups=count)
    return tally


@case(28, "Messages that can't be read", quick=True)
async def unreadable(bed: Bed, rng: Random, trials: int) -> Tally:
    """All become dead letters with a reason, and the queues keep moving."""
    tally = Tally()
    async with broker_channel(bed) as channel:
        dead = await channel.declare_queue("dead-letters", passive=True)
        await dead.purge()
        sent = 0
        async with background_load(bed, rng, tally, sessions=5):
            for queue in ("runs", "documents"):
                for body in list(UNREADABLE.values()) * trials:
                    await publish(channel, queue, body)
                    sent += 1

        async def all_set_aside() -> bool:
            return await depth(channel, "dead-letters") >= sent

        await eventually(all_set_aside, within=20)
        reasons = []
        while (letter := await dead.get(fail=False)) is not None:
            reasons.append(letter.headers.get("x-reason"))
            await letter.ack()
        tally.require(len(reasons) == sent, f"{len(reasons)} dead letters for {sent} messages")
        tally.require(all(reasons), f"dead letters without a reason: {reasons}")
        tally.note(reasons=sorted(set(map(str, reasons))))
    return tally


@case(29, "Queues and exchanges are deleted, again and again", quick=True)
async def missing_queues(bed: Bed, rng: Random, trials: int) -> Tally:
    """The outbox keeps what can't be published until a queue is there again; no wake-up that fell with one is missed."""
    tally = Tally()
    async with background_load(bed, rng, tally, sessions=8):
        for _ in range(4 * trials):
            async with broker_channel(bed) as channel:
                for name in rng.sample(QUEUES, rng.randint(1, len(QUEUES))):
                    await channel.queue_delete(name)
                for name in rng.sample(EXCHANGES, rng.randint(0, len(EXCHANGES))):
                    await channel.exchange_delete(name)
            await lasts(rng.uniform(1, 4))
        await bed.ready(within=30)
    return tally


@case(30, "Dead letters are redriven, twice", quick=True)
async def redriven(bed: Bed, rng: Random, trials: int) -> Tally:
    """Each is processed once."""
    tally = Tally()
    for name in RUNNERS:
        await bed.kill(name)
    async with broker_channel(bed) as channel, conversations(bed, tally, 5 * trials) as talks:
        asked = []
        for talk in talks:
            wish = new_wish(talk.client)
            asked.append((talk, wish, await talk.say(wish)))
        rows = await bed.fetch("SELECT tenant_id, session_id, id FROM run WHERE status = 'queued'")
        bodies = [
            ExecuteRun(tenant_id=row["tenant_id"], session_id=row["session_id"], run_id=row["id"]).model_dump_json()
            for row in rows
        ]
        for round_number in range(2):
            for body in bodies:
                await publish(channel, "dead-letters", body.encode(), **{"x-queue": "runs", "x-reason": "not_json"})
            code = await _redrive(bed)
            tally.require(code == 0, f"redriving ended with exit code {code}")
            left = await depth(channel, "dead-letters")
            tally.require(left == 0, f"{left} dead letters are left")
            if round_number == 0:
                for name in RUNNERS:
                    await bed.start(name)
        for talk, wish, run_id in asked:
            await talk.expect(run_id, wish)
            epoch = await epoch_of(bed, run_id)
            tally.require(epoch == 1, f"a run was claimed {epoch} times")
    return tally


async def _redrive(bed: Bed) -> int:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "deploy.dead_letters", "redrive", "all"),
        cwd=REPOSITORY,
        env={**clean_environment(), **bed.environment},
        stdout=asyncio.subprocess.DEVNULL,
    )
    return await process.wait()


@case(32, "Thousands of queued runs; a second runner starts 10 s after the first", trials=1500, seconds=420)
async def long_queue(bed: Bed, rng: Random, trials: int) -> Tally:
    """The memory of both stays bounded, and the second has work at once. TRIALS is the number of runs."""
    tally = Tally()
    for name in RUNNERS:
        await bed.kill(name)
    await _queue_runs(bed, trials)
    tally.attempted = tally.acknowledged = trials
    await bed.start("runner-0")
    await bed.ready("runner-0")
    before = _memory(bed, "runner-0")
    await lasts(10)
    await bed.start("runner-1")
    await bed.ready("runner-1")

    async def works() -> bool:
        return bool(await bed.held_runs("runner-1"))

    await eventually(works, within=10)

    async def all_done() -> bool:
        return not await bed.fetchval("SELECT count(*) FROM run WHERE status <> 'finished'")

    await eventually(all_done, within=360, every=1)
    tally.ok = await bed.fetchval("SELECT count(*) FROM run WHERE reason = 'completed' AND request_id = 'long-queue'")
    tally.require(tally.ok == trials, f"{tally.ok} of {trials} completed")
    grown = {name: round(_memory(bed, name) - before) for name in RUNNERS}
    tally.require(max(grown.values()) < 100, f"memory grew by {grown} MiB")
    tally.note(grown_mib=grown)
    return tally


def _memory(bed: Bed, name: str) -> float:
    return psutil.Process(bed.services[name].pid).memory_info().rss / 2**20


async def _queue_runs(bed: Bed, count: int) -> None:
    """Runs of 100 sessions of all tenants, written past the gateway's admission."""
    agents = [(client, await create_agent(client)) for client in bed.clients]
    sessions = []
    for number in range(100):
        client, agent_id = agents[number % len(agents)]
        sessions.append(await client.create("/api/sessions", {"agent_id": agent_id}))
    rows = await bed.fetch(
        "SELECT id, tenant_id FROM chat_session WHERE id::text = ANY ($1)", [s["id"] for s in sessions]
    )
    pool = await open_pool(bed.database_url, "faults", PoolSettings(max_size=4))
    try:
        for number in range(count):
            row = rows[number % len(rows)]
            async with pool.acquire() as connection, connection.transaction():
                await connection.execute("SELECT FROM chat_session WHERE id = $1 FOR NO KEY UPDATE", row["id"])
                await post_message(
                    connection,
                    tenant_id=row["tenant_id"],
                    session_id=row["id"],
                    message_id=new_id(),
                    run_id=new_id(),
                    content=f"number {number}",
                    metadata={},
                    request_id="long-queue",
                )
    finally:
        await pool.close()


@case(34, "A document of 20 MB travels")
async def large_document(bed: Bed, rng: Random, trials: int) -> Tally:
    """No message is larger than 256 KiB."""
    tally = Tally()
    client = rng.choice(bed.clients)
    library = await Library.found(client, (2,))
    async with tapped(bed) as seen:
        for _ in range(trials):
            text = "# Large\n\n" + "".join(f"## Part {n}\n\n{new_id()} {'word ' * 40_000}\n\n" for n in range(100))
            files = [("files", ("large.md", text.encode(), "text/markdown"))]
            path = f"/api/knowledge-bases/{library.base_id}/documents"
            answer = await client.call("POST", path, files=files)
            tally.require(answer.status_code == 202, answer.text[:300])
            tally.attempted += 1
            tally.acknowledged += 1
            document = await library.settled(answer.json()["items"][0]["id"], within=150)
            tally.require(document["state"] in ("ready", "failed"), str(document))
            tally.note(
                megabytes=len(text) // 10**6,
                state=document["state"],
                chunks=document["chunk_count"],
                error=document["error"],
            )
            tally.ok += 1
        async with conversation(client, tally, knowledge_base_ids=[library.base_id]) as talk:
            search = ScriptedCall(name="KnowledgeTool", arguments={"query": "word"})
            wish = new_wish(client, calls=[[search, search]])
            await talk.expect(await talk.say(wish), wish)
    largest = max(message.size for message in seen)
    tally.require(largest <= MOST_BYTES, f"a message of {largest} bytes")
    tally.note(largest=largest, messages=len(seen))
    return tally
