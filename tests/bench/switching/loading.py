"""The system around one large knowledge base that the former model has embedded."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

import httpx
import numpy as np

from services.ingestion.settings import VectorIndexSettings
from shared.db.pool import AnyConnection, Pool, PoolSettings, open_pool
from shared.ids import new_id
from tests.bench.scale.corpus import CHUNKS_PER_DOCUMENT, Corpus, Part
from tests.bench.scale.loading import INSERT_CHUNKS, INSERT_DOCUMENTS, VECTOR_COLUMNS
from tests.bench.switching.space import DIMENSIONS, Space
from tests.e2e.system import HelperProcess, System, post_json
from tests.support.accounts import create_accounts
from tests.support.stack import ServiceProcess, Stack, start_stack
from tests.support.waiting import eventually

BATCH: Final = 64  # texts in one request
_MODELS: Final = """
[chat.none]
base_url = "http://127.0.0.1:9/v1"
model = "none"
default = true
"""
_EMBEDDING: Final = """
[embedding.{name}]
base_url = "{url}/v1"
model = "{name}"
dimension = {dimension}
input_type = true
batch_size = {batch}
default = {default}
"""


@dataclass(frozen=True)
class Site:
    """What is measured, and its parts: ingestion is there to be killed, `pool` is the owner's."""

    client: httpx.AsyncClient
    path: str  # of the knowledge base
    ingestion: ServiceProcess
    models: HelperProcess
    pool: Pool
    base_id: UUID

    async def embedded(self, model: str) -> tuple[int, float]:
        """How many passages a model was asked for, and the seconds that took it."""
        counts = (await self.client.get(f"{self.models.base_url}/counts")).json()[model]
        return counts["passages"], counts["seconds"]


@asynccontextmanager
async def running_site(chunks: int, corpus: Corpus, scale: float) -> AsyncIterator[Site]:
    """Everything, with an indexed base of so many chunks. The bound from which bases are indexed shrinks with the scale."""
    stack = start_stack(durable=True)
    models = HelperProcess(["tests.bench.switching.model"], "/counts", stack.directory)
    try:
        await models.wait_ready()
        url, rabbitmq_url = stack.create_database(), stack.create_vhost()
        environment = {
            "DATABASE_URL": url,
            "RABBITMQ_URL": rabbitmq_url,
            "CHATMIND_MODELS_FILE": str(_write_models(stack.directory, models.base_url)),
            "CHATMIND_VECTOR_INDEXES__MIN_VECTORS": str(max(1, round(VectorIndexSettings().min_vectors * scale))),
        }
        create_accounts(stack, url)
        pool = await open_pool(url, "bench", PoolSettings(max_size=4, command_timeout=3600))
        try:
            yield await _filled(stack, environment, models, pool, corpus, chunks)
        finally:
            await pool.close()
    finally:
        models.kill()
        stack.stop()


def _write_models(directory: Path, url: str) -> Path:
    entries = [
        _EMBEDDING.format(name=name, url=url, dimension=dimension, batch=BATCH, default=str(name == "former").lower())
        for name, dimension in DIMENSIONS.items()
    ]
    file = directory / "models.toml"
    file.write_text(_MODELS + "".join(entries))
    return file


async def _filled(
    stack: Stack, environment: dict[str, str], models: HelperProcess, pool: Pool, corpus: Corpus, chunks: int
) -> Site:
    system = System(stack, environment)
    system.gateways = [system.add("services.gateway.main")]
    system.others = [system.add("services.retrieval.main"), system.add("services.ingestion.main")]
    for process in (*system.gateways, *system.others):
        process.wait_ready(60)
    system.connect()
    client = system.clients[0]
    base = await post_json(client, "/api/knowledge-bases", {"name": "Large", "embedding_model": "former"})
    base_id = UUID(base["id"])
    await _load(pool, base_id, corpus, chunks)
    await eventually(lambda: is_indexed(pool, base_id, 1), within=600)
    return Site(client, f"/api/knowledge-bases/{base_id}", system.others[1], models, pool, base_id)


async def is_indexed(pool: Pool, base_id: UUID, generation: int) -> bool:
    """Whether the product's sweeps have built the index of a generation."""
    return bool(
        await pool.fetchval(
            "SELECT EXISTS (SELECT FROM vector_index WHERE knowledge_base_id = $1 AND generation = $2"
            " AND relation IS NOT NULL AND NOT due)",
            base_id,
            generation,
        )
    )


async def _load(pool: Pool, base_id: UUID, corpus: Corpus, chunks: int) -> None:
    space = Space("former")
    sizes = [min(CHUNKS_PER_DOCUMENT, chunks - start) for start in range(0, chunks, CHUNKS_PER_DOCUMENT)]
    documents = [new_id() for _ in sizes]
    loaded = 0
    async with pool.acquire() as connection:
        await connection.execute("SET synchronous_commit = off")
        tenant_id = await connection.fetchval("SELECT tenant_id FROM knowledge_base WHERE id = $1", base_id)
        await connection.execute(INSERT_DOCUMENTS, tenant_id, base_id, documents, sizes)
        for part in corpus.parts(0, chunks):
            await _add_part(connection, (tenant_id, base_id), documents, part, loaded, space)
            loaded += len(part.contents)
        await connection.execute("RESET synchronous_commit; ")
        await connection.execute("VACUUM ANALYZE")


async def _add_part(
    connection: AnyConnection, place: tuple[UUID, UUID], documents: list[UUID], part: Part, first: int, space: Space
) -> None:
    """Chunks from the number `first` on, with the vectors that the former model has for them."""
    ids = [new_id() for _ in part.contents]
    numbers = range(first, first + len(ids))
    vectors = np.stack([space.vector(content) for content in part.contents])
    async with connection.transaction():
        await connection.execute(
            INSERT_CHUNKS, *place, ids, [documents[number // CHUNKS_PER_DOCUMENT] for number in numbers],
            [number % CHUNKS_PER_DOCUMENT for number in numbers], part.contents, part.keywords, part.lengths,
        )  # fmt: skip
        rows = [(*place, chunk_id, "body", vector, 1) for chunk_id, vector in zip(ids, vectors, strict=True)]
        await connection.copy_records_to_table("chunk_embedding", columns=VECTOR_COLUMNS, records=rows)
