"""`python -m tests.bench.scale [--seed N] [--stages 10000 100000]`: `make bench-scale`.

SCALE=0.05 takes that share of every size, FRESH=1 loads again what .local/bench/scale holds of earlier runs.
"""

import argparse
import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from random import Random
from typing import Final

from services.ingestion.settings import VectorIndexSettings
from shared.contracts.questions import SearchMode
from shared.logging import configure_logging
from tests.bench.scale.corpus import Corpus, base_sizes
from tests.bench.scale.loading import DIRECTORY, Loaded, load, load_average, running_server
from tests.bench.scale.measuring import Bench, Chosen, bench_of
from tests.support.reports import Row, meta_row, report_console, write_report

STAGES: Final = (10_000, 100_000, 300_000, 1_000_000)
LARGEST: Final = 0.1  # of all chunks, in one base
BASES: Final = 1_000
MODES: Final[Sequence[SearchMode]] = ("dense", "keyword", "hybrid")
CHOICES: Final[Sequence[Chosen]] = ("uniform", "by size")
SEARCHES: Final = (
    (1, 0.0, 100),
    (20, 1.0, 200),
    (20, 0.0, 400),
)  # clients, how many seconds they think before each search, searches
RECALL_QUESTIONS: Final = 50


async def measure(scale: float, seed: int, stages: Sequence[int]) -> list[Row]:
    """All rows, shown as they come; the report grows with them."""
    console = report_console()
    corpus = Corpus(seed)
    # The bounds between exact and index shrink with the data, so that a small run goes the same ways.
    indexes = VectorIndexSettings()
    indexes = indexes.model_copy(update={"min_vectors": max(1, round(indexes.min_vectors * scale)), "every": 0.2})
    rows: list[Row] = []
    async with running_server(DIRECTORY / f"data-{seed}") as server:
        for stage in stages:
            total = round(stage * scale)
            loaded = await load(server, corpus, base_sizes(total, BASES, max(1, round(total * LARGEST))), indexes)
            async with bench_of(loaded, corpus) as bench:
                if not rows:
                    version = await bench.owner.fetchval("SHOW server_version")
                    vector = await bench.owner.fetchval("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
                    rows.append(meta_row(seed, "seed", {"postgresql": version, "pgvector": vector}) | {"scale": scale})
                async for row in _rows(loaded, bench, seed, final=stage == stages[-1]):
                    row["name"] = f"scale/{sum(loaded.sizes)}/{row['name']}"
                    rows.append(row)
                    write_report("bench-scale", rows)
                    console.print(f"{row['name']:<50} {row['value']} {row['unit']}", markup=False)
    return rows


async def _rows(loaded: Loaded, bench: Bench, seed: int, *, final: bool) -> AsyncIterator[Row]:
    yield {
        "name": "load",
        "value": round(sum(loaded.sizes) / loaded.load_seconds),
        "unit": "chunks/s",
        "bases": len(loaded.sizes),
        "largest": max(loaded.sizes),
        "seconds": round(loaded.load_seconds, 1),
        "index_seconds": round(loaded.index_seconds, 1),
        "indexed_bases": len(await bench.indexed()),
    }
    for name, megabytes in (await bench.megabytes()).items():
        yield {"name": f"disk/{name}", "value": megabytes, "unit": "MiB"}
    async for row in _latency_rows(bench, seed):
        yield row
    async for row in _recall_rows(bench):
        yield row
    yield {"name": "short", "value": await bench.short(), "unit": "searches", "of": 2 * len(loaded.sizes)}
    if final:
        for share in (0.9, 0.999):
            short, p95, recall = await bench.short_after_deletion(0, share, RECALL_QUESTIONS)
            name = f"short/after deleting {share:.1%} of the largest"
            yield {
                "name": name,
                "value": short,
                "unit": "searches",
                "of": RECALL_QUESTIONS,
                "p95": p95,
                "recall": recall,
            }


async def _latency_rows(bench: Bench, seed: int) -> AsyncIterator[Row]:
    for mode in MODES:
        for chosen in CHOICES:
            await bench.latencies(mode, chosen, 20, 60, Random(seed))  # warms up caches and connections
            for clients, thinking, count in SEARCHES:
                taken = await bench.latencies(mode, chosen, clients, count, Random(seed + clients), thinking)
                yield {
                    "name": f"{mode}/{chosen}/{clients} clients" + (", thinking" if thinking else ""),
                    "thinking_seconds": thinking,
                    "value": taken.percentile(95),
                    "unit": "ms p95",
                    "p50": taken.percentile(50),
                    "per_second": taken.per_second,
                    "cpu_ms": taken.cpu_ms,
                    "searches": count,
                    "load_average": load_average(),
                }


async def _recall_rows(bench: Bench) -> AsyncIterator[Row]:
    indexed = await bench.indexed()
    for off_topic in (False, True):
        shares = [
            await bench.recall(number, bench.questions(number, RECALL_QUESTIONS, off_topic=off_topic))
            for number in indexed
        ]
        if shares:
            mean = round(sum(shares) / len(shares), 4)
            name = f"recall@10/{'off' if off_topic else 'on'} topic"
            yield {"name": name, "value": mean, "unit": "share", "lowest": min(shares), "bases": len(shares)}


def main() -> int:
    """The exit code: 1 when a search was short."""
    parser = argparse.ArgumentParser(prog="make bench-scale", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stages", type=int, nargs="*", default=STAGES, metavar="CHUNKS")
    arguments = parser.parse_args()
    configure_logging("bench", "warning")
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # whoever ends it this way wants its server to end as well
    if os.environ.get("FRESH") == "1":
        shutil.rmtree(DIRECTORY, ignore_errors=True)
    rows = asyncio.run(measure(float(os.environ.get("SCALE", "1")), arguments.seed, arguments.stages))
    return int(any(row["value"] for row in rows if "/short" in row["name"]))


if __name__ == "__main__":
    sys.exit(main())
