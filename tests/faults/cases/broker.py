"""RabbitMQ goes away, comes back, is cut off and runs out of room: cases 18, 19, 21 to 26, 31 and 33."""

import asyncio
from random import Random

from tests.faults.bed import Bed
from tests.faults.cases.runners import epoch_of
from tests.faults.catalogue import case
from tests.faults.clock import lasts
from tests.faults.conversation import conversation, new_wish
from tests.faults.load import background_load
from tests.faults.namespaces import Namespace
from tests.faults.outage import posting, seconds_to_ready
from tests.faults.tally import Tally

CONSUMERS = ("runner-0", "runner-1", "ingestion-0", "retrieval-0", "retrieval-1")
BACK_SECONDS = 15.0


@case(18, "Graceful restart of the broker under load", trials=2)
async def broker_restarts(bed: Bed, rng: Random, trials: int) -> Tally:
    """Running turns are not interrupted; consumers are back within 15 s."""
    tally = Tally()
    async with background_load(bed, rng, tally, sessions=10):
        for _ in range(trials):
            await asyncio.to_thread(bed.stack.rabbitmq.restart)
            await _expect_back(bed, tally)
            await lasts(3)
    tally.require(tally.recovered == 0, f"{tally.recovered} runs were interrupted")
    return tally


@case(19, "kill -9 of the broker under load", trials=10, seconds=600)
async def broker_killed(bed: Bed, rng: Random, trials: int) -> Tally:
    """Whatever was acknowledged ends."""
    tally = Tally()
    async with background_load(bed, rng, tally, sessions=10):
        for _ in range(trials):
            await asyncio.to_thread(bed.stack.rabbitmq.kill)
            await lasts(rng.uniform(0.2, 2))
            await asyncio.to_thread(bed.stack.rabbitmq.start)
            await _expect_back(bed, tally)
            await lasts(rng.uniform(0, 3))
    return tally


async def _expect_back(bed: Bed, tally: Tally) -> None:
    took = await seconds_to_ready(bed, *CONSUMERS)
    tally.resume_seconds.append(took)
    tally.require(took <= BACK_SECONDS, f"consumers were back after {took:.1f} s")


@case(21, "Broker down for 60 s while messages are posted", seconds=300)
async def broker_down(bed: Bed, rng: Random, trials: int) -> Tally:
    """They are accepted, none takes longer than 2 s, and all run."""
    tally = Tally()
    for _ in range(trials):
        async with posting(bed, rng, tally, seconds=60):
            await asyncio.to_thread(bed.stack.rabbitmq.kill)
            await lasts(60)
            await asyncio.to_thread(bed.stack.rabbitmq.start)
            await _expect_back(bed, tally)
    return tally


@case(22, "Broker down when services start")
async def started_without_broker(bed: Bed, rng: Random, trials: int) -> Tally:
    """They wait without crashing, say that they are not ready, and connect when it is there."""
    tally = Tally()
    for _ in range(trials):
        await asyncio.to_thread(bed.stack.rabbitmq.stop)
        for name in bed.services:
            await bed.kill(name)
            await bed.start(name)
        await bed.ready("gateway-0", "gateway-1")  # which need no broker to accept
        await lasts(8)
        for name in CONSUMERS:
            ready = await asyncio.to_thread(bed.services[name].is_ready)
            tally.require(not ready, f"{name} says that it is ready")
            tally.require(bed.services[name].process.poll() is None, f"{name} has ended")
        client = rng.choice(bed.clients)
        async with conversation(client, tally) as talk:
            wish = new_wish(client)
            run_id = await talk.say(wish)
            await asyncio.to_thread(bed.stack.rabbitmq.start)
            await _expect_back(bed, tally)
            await talk.expect(run_id, wish)
    return tally


@case(23, "Packets between a runner and the broker vanish for 90 s", seconds=360)
async def packets_vanish(bed: Bed, rng: Random, trials: int) -> Tally:
    """The loss is noticed, the consumer comes back, and nothing is done twice."""
    tally = Tally()
    for _ in range(trials):
        async with Namespace(bed.ports()) as namespace:
            await bed.kill("runner-0")
            await bed.start("runner-0", within=namespace.command)
            await namespace.ready(bed, "runner-0")
            async with background_load(bed, rng, tally, sessions=8):
                await namespace.drop(bed.stack.rabbitmq.port)
                await lasts(90)
                await namespace.restore()
                await lasts(5)
            await namespace.ready(bed, "runner-0")
    return tally


@case(24, "Connections between a runner and the broker are reset", seconds=240)
async def connections_reset(bed: Bed, rng: Random, trials: int) -> Tally:
    """As with packets that vanish, but noticed at once."""
    tally = Tally()
    proxy = await bed.proxied("runner-0", "rabbitmq")
    async with background_load(bed, rng, tally, sessions=8):
        for _ in range(10 * trials):
            proxy.reset()
            await lasts(rng.uniform(0.5, 2.5))
    await bed.ready("runner-0", within=BACK_SECONDS)
    tally.require(tally.recovered == 0, f"{tally.recovered} runs were interrupted")
    tally.note(connections=proxy.accepted)
    return tally


@case(25, "Memory alarm of the broker for 60 s", seconds=300)
async def memory_alarm(bed: Bed, rng: Random, trials: int) -> Tally:
    """Gateways answer, turns go on, and afterwards the backlog is done."""
    return await _alarm(bed, rng, trials, ["set_vm_memory_high_watermark", "absolute", "1"], _MEMORY)


@case(26, "Disk alarm of the broker for 60 s", seconds=300)
async def disk_alarm(bed: Bed, rng: Random, trials: int) -> Tally:
    """The same."""
    return await _alarm(bed, rng, trials, ["set_disk_free_limit", "100000GB"], ["set_disk_free_limit", "200MB"])


_MEMORY = ["set_vm_memory_high_watermark", "absolute", "1GB"]


async def _alarm(bed: Bed, rng: Random, trials: int, on: list[str], off: list[str]) -> Tally:
    tally = Tally()
    for trial in range(trials):
        client = rng.choice(bed.clients)
        async with conversation(client, tally) as talk:
            running = new_wish(client, gate=f"alarm-{trial}")
            run_id = await talk.say(running)
            await bed.model.someone_at(f"alarm-{trial}")
            await asyncio.to_thread(bed.stack.rabbitmq.ctl, *on)
            try:
                async with posting(bed, rng, tally, seconds=60):
                    bed.model.open(f"alarm-{trial}")
                    await talk.expect(run_id, running, within=20)
                    await lasts(60)
                    await asyncio.to_thread(bed.stack.rabbitmq.ctl, *off)
            finally:
                await asyncio.to_thread(bed.stack.rabbitmq.ctl, *off)
            epoch = await epoch_of(bed, run_id)
            tally.require(epoch == 1, f"the running turn was claimed {epoch} times")
    return tally


@case(31, "The queue of runs is full")
async def full_queue(bed: Bed, rng: Random, trials: int) -> Tally:
    """Its publishers are refused, the outbox keeps the wake-ups, and nothing is lost."""
    tally = Tally()
    ctl, vhost = bed.stack.rabbitmq.ctl, ("--vhost", bed.vhost)
    limit = '{"max-length": 0, "overflow": "reject-publish"}'
    for _ in range(trials):
        await asyncio.to_thread(ctl, "set_policy", *vhost, "full", "^runs$", limit, "--apply-to", "queues")
        try:
            async with posting(bed, rng, tally, seconds=10):
                await lasts(10)
                kept = await bed.fetchval("SELECT count(*) FROM outbox")
                tally.note(kept_in_the_outbox=kept)
                await asyncio.to_thread(ctl, "clear_policy", *vhost, "full")
        finally:
            if "full" in await asyncio.to_thread(ctl, "list_policies", *vhost):
                await asyncio.to_thread(ctl, "clear_policy", *vhost, "full")
    return tally


@case(33, "A turn of 60 s with a consumer timeout of 20 s", seconds=240)
async def consumer_timeout(bed: Bed, rng: Random, trials: int) -> Tally:
    """Nothing happens: no message is held while a run goes on. (The same proportions as 150 s and 60 s.)"""
    tally = Tally()
    evaluate = bed.stack.rabbitmq.ctl
    for name, value in (("consumer_timeout", "20000"), ("channel_tick_interval", "5000")):
        await asyncio.to_thread(evaluate, "eval", f"application:set_env(rabbit, {name}, {value}).")
    try:
        for name in ("runner-0", "runner-1"):
            await bed.restart(name)  # their new channels have the short timeout
        for _ in range(trials):
            client = rng.choice(bed.clients)
            async with conversation(client, tally) as talk:
                wish = new_wish(client, text="x" * 60, chunk_chars=1, delay_ms=1000)
                run_id = await talk.say(wish)
                await talk.expect(run_id, wish, within=90)
                epoch = await epoch_of(bed, run_id)
                tally.require(epoch == 1, f"the run was claimed {epoch} times")
    finally:
        for name, value in (("consumer_timeout", "1800000"), ("channel_tick_interval", "60000")):
            await asyncio.to_thread(evaluate, "eval", f"application:set_env(rabbit, {name}, {value}).")
        bed.changed("runner-0", "runner-1")
    return tally
