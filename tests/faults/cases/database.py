"""PostgreSQL stops, crashes, goes away, loses sessions: cases 35 to 38."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

import psutil

from deploy.local.processes import end_processes, processes_under
from tests.faults.bed import Bed
from tests.faults.cases.runners import RUNNERS, conversations
from tests.faults.catalogue import case
from tests.faults.clock import lasts
from tests.faults.conversation import new_wish
from tests.faults.load import background_load
from tests.faults.outage import posting, seconds_to_ready
from tests.faults.tally import Tally

BACK_SECONDS = 5.0
RECONNECTS_A_SECOND = 5.0
"""Of one service."""
IDLE_CPU = 0.3
_SESSIONS = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend' ORDER BY pid
"""


async def _expect_back(bed: Bed, tally: Tally) -> None:
    took = await seconds_to_ready(bed)
    tally.resume_seconds.append(took)
    tally.require(took <= BACK_SECONDS, f"services were ready {took:.1f} s after the database")


@case(35, "Fast restart of PostgreSQL under load", trials=2, quick=True)
async def fast_restart(bed: Bed, rng: Random, trials: int) -> Tally:
    """What is refused is refused with 503; everything is ready 5 s after the database."""
    tally = Tally()
    async with background_load(bed, rng, tally, sessions=8):
        for _ in range(trials):
            async with posting(bed, rng, tally, seconds=4, limit=BACK_SECONDS):
                await asyncio.to_thread(bed.stack.postgres.restart)
                await _expect_back(bed, tally)
            await lasts(rng.uniform(1, 3))
    return tally


@case(36, "Crash of PostgreSQL under load", trials=10, seconds=600)
async def crashed(bed: Bed, rng: Random, trials: int) -> Tally:
    """What was acknowledged is kept. In turns an immediate shutdown and SIGKILL for all of its processes."""
    tally = Tally()
    async with background_load(bed, rng, tally, sessions=10):
        for trial in range(trials):
            await asyncio.to_thread(_kill if trial % 2 else _stop_at_once, bed)
            await lasts(rng.uniform(0, 2))
            await asyncio.to_thread(bed.stack.postgres.start)
            await _expect_back(bed, tally)
            await lasts(rng.uniform(2, 5))
    return tally


def _kill(bed: Bed) -> None:
    bed.stack.postgres.kill()


def _stop_at_once(bed: Bed) -> None:
    end_processes(processes_under(bed.stack.postgres.directory), 10, signal.SIGQUIT)


@case(37, "PostgreSQL down for 60 s", seconds=300)
async def database_down(bed: Bed, rng: Random, trials: int) -> Tally:
    """Answers come within 2 s, nobody spins or storms, and turns that were under way end afterwards."""
    tally = Tally()
    for trial in range(trials):
        async with conversations(bed, tally, 6) as talks, AsyncExitStack() as stack:
            asked = []
            for number, talk in enumerate(talks):
                gate = f"down-{trial}-{number}"
                wish = new_wish(talk.client, gate=gate, chunk_chars=4)
                asked.append((talk, wish, await talk.say(wish)))
                await bed.model.someone_at(gate)
            await stack.enter_async_context(posting(bed, rng, tally, seconds=60))
            await asyncio.to_thread(bed.stack.postgres.stop)
            async with _door_closed(bed, tally):
                for gate in (wish.gate for _, wish, _ in asked):
                    bed.model.open(gate)
                await lasts(60)
            await asyncio.to_thread(bed.stack.postgres.start)
            await _expect_back(bed, tally)
            for talk, wish, run_id in asked:
                await talk.expect(run_id, wish)
            tally.recovered += len(asked)
    return tally


@asynccontextmanager
async def _door_closed(bed: Bed, tally: Tally) -> AsyncIterator[None]:
    """Somebody at the database's port who counts callers and sends them away, and what the services' CPUs do meanwhile."""
    callers = 0

    async def send_away(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal callers
        callers += 1
        writer.close()

    processes = {name: psutil.Process(service.pid) for name, service in bed.services.items()}
    server = await asyncio.start_server(send_away, "127.0.0.1", bed.stack.postgres.port)
    began, before = time.monotonic(), {name: sum(process.cpu_times()[:2]) for name, process in processes.items()}
    try:
        yield
    finally:
        seconds = time.monotonic() - began
        server.close()
    shares = {name: (sum(process.cpu_times()[:2]) - before[name]) / seconds for name, process in processes.items()}
    busiest = max(shares, key=lambda name: shares[name])
    tally.require(shares[busiest] < IDLE_CPU, f"{busiest} took {shares[busiest]:.0%} of a CPU")
    rate = callers / seconds / len(processes)
    tally.require(rate < RECONNECTS_A_SECOND, f"{rate:.1f} connections a second of each service")
    tally.note(connections_a_second=round(rate, 2), busiest_cpu=round(shares[busiest], 3))


@case(38, "pg_terminate_backend of a random session every 500 ms for 60 s", seconds=300)
async def sessions_end(bed: Bed, rng: Random, trials: int) -> Tally:
    """As if nothing were."""
    tally = Tally()
    ended = 0
    connection = await bed.connect()
    try:
        async with background_load(bed, rng, tally, sessions=8):
            for _ in range(120 * trials):
                pids = [row["pid"] for row in await connection.fetch(_SESSIONS)]
                if pids:
                    ended += await connection.fetchval("SELECT pg_terminate_backend($1)", rng.choice(pids))
                await lasts(0.5)
    finally:
        await connection.close()
    tally.note(ended=ended)
    await bed.ready(*RUNNERS, within=BACK_SECONDS)
    return tally
