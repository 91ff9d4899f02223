"""G1 to G7 of the promise, checked on the whole system after every case."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import asyncpg
import orjson

from shared.db.queries import load_queries
from tests.faults.bed import Bed
from tests.faults.resources import excesses, usage_of
from tests.support.waiting import eventually

SQL = load_queries(Path(__file__).with_name("invariants.sql"))

QUIET_SECONDS = 60.0
"""G1: from the end of a fault to the last end of a run."""
_LOG_CANARY = re.compile(r"canary-[0-9a-f]{32}")
_CONSUMERS = {"runs": "runner", "documents": "ingestion", "search-questions": "retrieval"}


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a case begins: the database's time and the ends of the logs."""

    since: datetime
    log_ends: dict[str, int]


async def mark(bed: Bed) -> Mark:
    """The state from which a case's traces count. Forgets what the ledger and the clients have seen."""
    bed.ledger.forget()
    bed.incidents.clear()
    bed.model.forget()
    ends = {name: service.log_file.stat().st_size for name, service in bed.services.items()}
    return Mark(await bed.fetchval("SELECT clock_timestamp()"), ends)


async def violations(bed: Bed, begun: Mark) -> list[str]:
    """What does not hold; waits for the system to come to rest first."""
    found = await _until_nothing(lambda: _rows(bed, begun, "unfinished"), QUIET_SECONDS, "G1")
    found += await _rows(bed, begun, "kept")
    found += await _overlaps(bed, begun)
    found += [f"G2: {count} effects for {key}" for key, count in bed.ledger.duplicates().items()]
    found += await _until_nothing(lambda: _rows(bed, begun, "at_rest"), 15, "G5")
    found += await _until_nothing(lambda: _stuck(bed), 15, "stuck")
    found += await _until_nothing(lambda: _queues(bed), 25, "G5", every=2)
    found += await _until_nothing(lambda: _held(bed), 20, "G5")
    found += [f"G6, G7: {incident}" for incident in dict.fromkeys(map(str, bed.incidents))]
    found += [f"a history that a model refuses: {problem}" for problem in bed.model.refused]
    found += list(_log_lines(bed, begun))
    return found


async def _until_nothing(
    check: Callable[[], Awaitable[list[str]]], seconds: float, name: str, every: float = 0.3
) -> list[str]:
    """What `check` still finds after so many seconds."""
    found: list[str] = []

    async def is_clean() -> bool:
        found[:] = await check()
        return not found

    try:
        await eventually(is_clean, within=seconds, every=every)
    except AssertionError:
        return [f"{name}: {line}" for line in found]
    return []


async def _rows(bed: Bed, begun: Mark, kind: str) -> list[str]:
    """The statements of one kind (the part of their names before the double underscore) that return rows."""
    connection = await bed.connect()
    try:
        wanted = [name for name in SQL if name.startswith(f"{kind}__")]
        return [line for name in wanted for line in _told(name, await _fetch(connection, name, begun))]
    finally:
        await connection.close()


async def _held(bed: Bed) -> list[str]:
    """G5: open files and memory are about what they were at the start."""
    return excesses(await asyncio.to_thread(usage_of, bed.services), bed.at_start)


async def _stuck(bed: Bed) -> list[str]:
    """The view of what nobody is responsible for is empty."""
    if await bed.fetchval("SELECT to_regclass('stuck')") is None:
        return []
    return list(_told("stuck__rows_that_nobody_is_responsible_for", await bed.fetch(SQL["stuck"])))


async def _fetch(connection: "asyncpg.Connection[asyncpg.Record]", name: str, begun: Mark) -> Sequence[asyncpg.Record]:
    statement = await connection.prepare(SQL[name])
    return await statement.fetch(*[begun.since][: len(statement.get_parameters())])


def _told(name: str, rows: Sequence[asyncpg.Record]) -> Iterator[str]:
    if rows:
        title = name.partition("__")[2].replace("_", " ")
        yield f"{title}: {len(rows)}, such as {dict(rows[0])}"


async def _overlaps(bed: Bed, begun: Mark) -> list[str]:
    """G3: runs of a session are worked on one after the other, and begin in the order of acceptance."""
    rows = await bed.fetch(SQL["intervals"], begun.since)
    found = []
    for session_id, events in groupby(rows, key=lambda row: row["session_id"]):
        working: Any = None
        last_begun = 0
        for row in events:
            if working is not None and row["run_id"] != working:
                found.append(
                    f"G3: in session {session_id} run {row['run_id']} has an event while {working} is worked on"
                )
                break
            if row["type"] == "run.state" and working is None and row["run_seq"] < last_begun:
                found.append(f"G3: in session {session_id} run {row['run_id']} began after a later one")
                break
            last_begun = max(last_begun, row["run_seq"] if row["type"] == "run.state" else 0)
            working = row["run_id"] if row["type"] == "run.state" else None
    return found


async def _queues(bed: Bed) -> list[str]:
    """G5: nothing ready, nothing unacknowledged but dead letters, and every consumer there."""
    found = []
    for name, ready, unacknowledged, consumers in await bed.queues():
        if name == "dead-letters" or name.startswith("amq."):
            continue
        if ready or unacknowledged:
            found.append(f"queue {name} holds {ready} ready and {unacknowledged} unacknowledged messages")
        expected = len(bed.names(_CONSUMERS[name])) if name in _CONSUMERS else consumers
        if consumers != expected:
            found.append(f"queue {name} has {consumers} consumers, not {expected}")
    return found


def _log_lines(bed: Bed, begun: Mark) -> Iterator[str]:
    """G6 and G7 in the logs: no secret, nothing that a tenant has said, no error that nobody had thought of."""
    for name, service in bed.services.items():
        with service.log_file.open("rb") as log:
            log.seek(begun.log_ends.get(name, 0))
            text = log.read().decode(errors="replace")
        if any(secret in text for secret in bed.secrets):
            yield f"G6: a secret is in the log of {name}"
        if _LOG_CANARY.search(text):
            yield f"G7: words of a tenant are in the log of {name}"
        crashes = {_event_of(line) for line in text.splitlines() if "Traceback (most recent" in line}
        for event in sorted(crashes):
            yield f"G6: {name} logged a stack trace: {event}"


def _event_of(line: str) -> str:
    try:
        entry = orjson.loads(line)
    except ValueError:
        return line[:200]
    trace = str(entry.get("exception", "")).strip().splitlines()
    return f"{entry.get('event')} ({trace[-1][:200] if trace else ''})"
