"""How quickly files become searchable, by format, and what the largest cost in memory.

The product's own way is measured whole: upload by HTTP, queue, parse in a subprocess, split, embed, swap; only the embedding model is a
server that answers at once. Its baselines in the same run are the format's library alone, and one bulk insert of the same chunks.
"""

import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import asyncpg

from services.ingestion.parsing.limits import ParseLimits
from services.ingestion.parsing.worker import IsolatedParser
from services.ingestion.text import DocumentError
from tests.bench import documents
from tests.bench.bare import insert_rate, parse_rate
from tests.e2e.system import System, post_json
from tests.support.embedding_server import EmbeddingServer
from tests.support.peak_memory import PeakMemory
from tests.support.reports import Row
from tests.support.stack import Stack
from tests.support.waiting import eventually

DIMENSION = 384
FILES = 60
_FILES_A_REQUEST = 20
_MODELS = """
[chat.none]
base_url = "{url}"
model = "none"
default = true

[embedding.instant]
base_url = "{url}"
model = "instant"
dimension = {dimension}
batch_size = 64
default = true
"""
_CHUNKS = """
SELECT tenant_id, id, document_id, ordinal, title, content, keywords::text AS keywords FROM chunk WHERE knowledge_base_id = $1 ORDER BY id
"""


async def ingestion_rows(stack: Stack, directory: Path, seed: int) -> AsyncIterator[Row]:
    """Two rows a format: files and chunks a second."""
    async with EmbeddingServer(DIMENSION) as model:
        models = directory / "models.toml"
        models.write_text(_MODELS.format(url=model.url, dimension=DIMENSION))
        environment = {
            "DATABASE_URL": stack.create_database(),
            "RABBITMQ_URL": stack.create_vhost(),
            "CHATMIND_MODELS_FILE": str(models),
        }
        system = System(stack, environment)
        try:
            system.start(replicas=1)
            system.connect()
            await _ingest(system, "warm-up", [documents.markdown(one) for one in documents.outlines(5, seed)])
            for kind, write in documents.FORMATS.items():
                files = [write(outline) for outline in documents.outlines(FILES, seed)]
                for row in await _measure(system, kind, files):
                    yield row
        finally:
            for client in system.clients:
                await client.aclose()
            system.stop()


async def _measure(system: System, kind: str, files: Sequence[bytes]) -> list[Row]:
    bare = parse_rate(kind, files)
    base_id, seconds = await _ingest(system, kind, files)
    connection = await asyncpg.connect(system.environment["DATABASE_URL"])
    try:
        chunks = await connection.fetch(_CHUNKS, base_id)
    finally:
        await connection.close()
    bulk = await insert_rate(system.environment["DATABASE_URL"], chunks, DIMENSION)
    return [
        _row(f"ingestion/{kind}/files", len(files) / seconds, "files/s", bare, "the bare parser"),
        _row(f"ingestion/{kind}/chunks", len(chunks) / seconds, "chunks/s", bulk, "one bulk insert"),
    ]


async def _ingest(system: System, kind: str, files: Sequence[bytes]) -> tuple[str, float]:
    """Uploads files and waits until all are ready; the knowledge base and how many seconds it took."""
    client = system.clients[0]
    base = await post_json(client, "/api/knowledge-bases", {"name": kind, "settings": {"embed": "body"}})
    suffix = kind if kind in documents.FORMATS else "md"
    started = time.perf_counter()
    for first in range(0, len(files), _FILES_A_REQUEST):
        parts = [
            ("files", (f"{number}.{suffix}", data))
            for number, data in enumerate(files[first : first + _FILES_A_REQUEST], start=first)
        ]
        answer = await client.post(f"/api/knowledge-bases/{base['id']}/documents", files=parts)
        assert answer.status_code == 202, answer.text

    async def all_ready() -> bool:
        items = (await client.get(f"/api/knowledge-bases/{base['id']}/documents", params={"limit": 200})).json()[
            "items"
        ]
        failed = [item["error"] for item in items if item["state"] == "failed"]
        assert not failed, failed
        return all(item["state"] == "ready" for item in items)

    await eventually(all_ready, within=300, every=0.1)
    return base["id"], time.perf_counter() - started


async def memory_rows(seed: int) -> AsyncIterator[Row]:
    """What the parser's process takes at its peak, and for how long, with the largest files that are allowed."""
    outline = documents.outlines(1, seed)[0]
    large = {
        "pdf-2000-pages": ("large.pdf", documents.pdf(outline, pages=2000)),
        "txt-50-MB": (
            "large.txt",
            (documents.plain(outline) * 20_000)[: 50 * 1024**2].decode(errors="ignore").encode(),
        ),
        "md-10-MB": ("large.md", (documents.markdown(outline) * 4000)[: 10 * 1024**2].decode(errors="ignore").encode()),
    }
    for name, (filename, data) in large.items():
        async with IsolatedParser(ParseLimits(), parallel=1) as parser, PeakMemory() as peak:
            started = time.perf_counter()
            try:
                outcome = f"{len((await parser.parse(data, filename=filename)).pieces)} chunks"
            except DocumentError as error:
                outcome = error.code
            seconds = round(time.perf_counter() - started, 2)
        yield {
            "name": f"memory/{name}",
            "value": round(peak.megabytes),
            "unit": "MB",
            "seconds": seconds,
            "outcome": outcome,
            "file_megabytes": round(len(data) / 1e6, 1),
        }


def _row(name: str, value: float, unit: str, baseline: float, against: str) -> Row:
    return {
        "name": name,
        "value": round(value, 1),
        "unit": unit,
        "baseline": round(baseline, 1),
        "ratio": round(value / baseline, 4),
        "against": against,
    }
