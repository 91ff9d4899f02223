"""`python -m tests.bench.switching [--seed N]`: `make bench-switch`.

A knowledge base of 100,000 chunks changes its embedding model while clients search it and its worker is killed, and goes back.
SCALE=0.05 takes that share of the chunks.
"""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import orjson

from shared.logging import configure_logging
from tests.bench.scale.corpus import Corpus
from tests.bench.scale.loading import load_average
from tests.bench.switching.loading import BATCH, Site, running_site
from tests.bench.switching.searching import TOP_K, Clients, Searched, phase, searching
from tests.bench.switching.space import DIMENSIONS, QUESTIONS, Truth, question_text
from tests.support.reports import Row, meta_row, report_console, write_report
from tests.support.waiting import eventually

CHUNKS: Final = 100_000
KILLS: Final = 4
_SEARCHES: Final = 200  # before, after, and after going back
_RIGHT_AFTER: Final = 5.0  # seconds
_LONGEST: Final = 3600.0
_LOSS: Final = 0.01  # of recall, against the lower of both models


@dataclass(frozen=True, slots=True)
class Change:
    """When the change was asked for, when all were embedded and when it was over; and going back, in the seconds of time.monotonic()."""

    asked: float
    served: float
    back_asked: float
    back_answered: float
    kills: int
    pending: int  # vectors that an index was behind by, at most


async def change_and_go_back(site: Site, clients: Clients, chunks: int, rng: Random) -> Change:
    """Both, with searches before, between and after."""
    await clients.more(_SEARCHES, 1)
    asked = time.monotonic()
    (await site.client.patch(site.path, json={"embedding_model": "next"})).raise_for_status()
    kills, pending = await _until_served(site, chunks, rng)
    served = time.monotonic()
    await clients.more(_SEARCHES, 2)
    back_asked = time.monotonic()
    (await site.client.post(f"{site.path}/embedding/rollback")).raise_for_status()
    back_answered = time.monotonic()
    await clients.more(_SEARCHES, 1)
    return Change(asked, served, back_asked, back_answered, kills, pending)


async def _until_served(site: Site, chunks: int, rng: Random) -> tuple[int, int]:
    """Kills the worker at random moments on the way."""
    due = sorted(rng.uniform(0.02, 0.95) * chunks for _ in range(KILLS))
    kills, pending = 0, 0

    async def served() -> bool:
        nonlocal kills, pending
        passages, _ = await site.embedded("next")
        if kills < len(due) and passages >= due[kills]:
            site.ingestion.kill()
            site.ingestion.start()
            kills += 1
        pending = max(pending, await site.pool.fetchval("SELECT count(*) FROM vector_pending"))
        base = (await site.client.get(site.path)).json()
        assert base["embedding"]["state"] != "failed", base
        return bool(base["embedding_model"] == "next")

    await eventually(served, within=_LONGEST, every=0.05)
    return kills, pending


def _logged(site: Site, event: str) -> list[Any]:
    """What ingestion has logged of a kind."""
    lines = site.ingestion.log_file.read_bytes().splitlines()
    return [orjson.loads(line) for line in lines if b'"%s"' % event.encode() in line and line.startswith(b"{")]


def _phase_rows(searches: list[Searched], change: Change) -> Iterator[Row]:
    first = min(one.ended for one in searches if one.generation == 2)
    phases = {
        "before": lambda one: one.ended < change.asked,
        "during": lambda one: change.asked <= one.ended and one.generation == 1 and one.began < change.back_asked,
        "right after the cut-over": lambda one: one.generation == 2 and one.ended < first + _RIGHT_AFTER,
        "after": lambda one: one.generation == 2 and one.ended >= first + _RIGHT_AFTER,
        "right after going back": lambda one: change.back_answered <= one.began < change.back_answered + _RIGHT_AFTER,
        "gone back": lambda one: one.began >= change.back_answered + _RIGHT_AFTER,
    }
    for name, wanted in phases.items():
        figures = phase(searches, wanted)
        yield {"name": f"recall/{name}", "value": figures.pop("recall"), "unit": f"recall@{TOP_K}", **figures}


def _count_rows(searches: list[Searched], change: Change) -> Iterator[Row]:
    failures = [one.failure for one in searches if one.failure is not None]
    answered = [one for one in searches if one.failure is None]
    stale = [one for one in answered if one.began > change.back_answered and one.generation != 1]
    yield {"name": "searches", "value": len(searches), "unit": "searches"}
    yield {"name": "never/failed", "value": len(failures), "unit": "searches", "first": failures[:1]}
    yield {"name": "never/short", "value": sum(one.hits != TOP_K for one in answered), "unit": "searches"}
    yield {"name": "never/mixed", "value": sum(one.mixed for one in answered), "unit": "searches"}
    yield {"name": "never/stale after going back", "value": len(stale), "unit": "searches"}


async def _cost_rows(site: Site, change: Change, chunks: int) -> list[Row]:
    passages, seconds = await site.embedded("next")
    indexed, switched = (_logged(site, event) for event in ("generation.serves", "generation.cut_over"))
    took = change.served - change.asked
    return [
        {
            "name": "re-embedding",
            "value": round(took, 1),
            "unit": "s",
            "chunks_per_second": round(chunks / took),
            "in_the_model": round(seconds, 1),
            "kills": change.kills,
            "most_pending": change.pending,
        },
        {
            "name": "embedded",
            "value": round(passages / chunks, 4),
            "unit": "texts a chunk",
            "again": passages - chunks,
            "may_be_again": change.kills * BATCH,
        },
        {
            "name": "index built before the cut-over",
            "value": int(indexed[0]["index"] == "ready"),
            "unit": "yes = 1",
            "waited": sum(one["seconds"] for one in _logged(site, "generation.waited_for_index")),
        },
        {"name": "cut-over", "value": switched[0]["ms"], "unit": "ms"},
        {"name": "going back", "value": round(change.back_answered - change.back_asked, 3), "unit": "s"},
    ]


def _verdicts(rows: list[Row]) -> Iterator[Row]:
    """What must be 0."""
    values = {row["name"]: row["value"] for row in rows}
    recalls = {name.removeprefix("recall/"): value for name, value in values.items() if name.startswith("recall/")}
    floor = min(recalls["before"], recalls["after"]) - _LOSS
    below = [name for name, value in recalls.items() if value is not None and value < floor]
    yield {"name": "never/recall below both models'", "value": len(below), "unit": "phases", "floor": floor}
    cost = next(row for row in rows if row["name"] == "embedded")
    again = max(0, cost["again"] - cost["may_be_again"])
    yield {"name": "never/embedded again beyond a batch a kill", "value": again, "unit": "texts"}


async def measure(scale: float, seed: int) -> list[Row]:
    """All rows, shown as they come."""
    console, corpus, chunks = report_console(), Corpus(seed), round(CHUNKS * scale)
    questions = [question_text(text, number) for number, (text, _) in enumerate(corpus.questions(0, QUESTIONS))]
    truths = {number: Truth(model, chunks, TOP_K) for number, model in enumerate(DIMENSIONS, start=1)}
    async with running_site(chunks, corpus, scale) as site:
        clients = Clients(site.client, site.path, questions, truths)
        load = [load_average()]
        async with searching(clients):
            change = await change_and_go_back(site, clients, chunks, Random(seed))
        load.append(load_average())
        version = await site.pool.fetchval("SHOW server_version")
        rows = [meta_row(seed, "seed", {"postgresql": version}) | {"scale": scale, "load_average": load}]
        rows += _phase_rows(clients.searches, change)
        rows += _count_rows(clients.searches, change)
        rows += await _cost_rows(site, change, chunks)
        rows += _verdicts(rows)
    write_report("bench-switch", rows)
    for row in rows:
        more = ", ".join(f"{name} {value}" for name, value in row.items() if name not in ("name", "value", "unit"))
        console.print(f"{row['name']:<40} {row['value']} {row['unit']}   {more}", markup=False)
    return rows


def main() -> int:
    """The exit code: 1 when something happened that never may."""
    parser = argparse.ArgumentParser(prog="make bench-switch", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    configure_logging("bench", "warning")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends it this way wants its servers to end too
    rows = asyncio.run(measure(float(os.environ.get("SCALE", "1")), arguments.seed))
    return int(any(row["value"] for row in rows if row["name"].startswith("never/")))


if __name__ == "__main__":
    sys.exit(main())
