"""Large knowledge bases, which are those of more than 100 vectors here, and their indexes."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from uuid import UUID

import numpy as np
import pytest

from services.ingestion.settings import VectorIndexSettings
from services.ingestion.vector_indexes import VectorIndexes
from services.retrieval.ports import KnowledgeBase, Scan, Target
from services.retrieval.ranking import TITLE_SHARE, DenseMatch, KeywordMatch
from services.retrieval.store import SearchStore
from shared.contracts.questions import SearchFilter
from shared.db.pool import Pool
from shared.keywords import query_terms
from tests.integration.retrieval.library import DIMENSIONS, Base, Library
from tests.support.embedding_server import vector_of
from tests.support.waiting import eventually

SETTINGS = VectorIndexSettings(min_vectors=100, count_every=0, batch=20)
LARGE = [f"passage {n}" for n in range(120)]


async def nearest(
    library: Library,
    base: Base,
    question: str = "q",
    limit: int = 10,
    *,
    generation: int = 1,
    only: SearchFilter | None = None,
) -> tuple[Scan, list[DenseMatch]]:
    """How the base was gone through, and what was found."""
    vector = np.array(vector_of(question, DIMENSIONS[base.model]), np.float32)
    target = Target(base.tenant_id, [KnowledgeBase(base.id, base.model, generation)], [vector], [], only)
    async with SearchStore(library.pool, keyword_postings=100, exact_chunks=10).reader() as reader:
        found = await reader.nearest(target, limit)
        return reader.scans[base.id], found


async def matching(library: Library, base: Base, question: str) -> list[KeywordMatch]:
    """The best hundred for these words."""
    target = Target(base.tenant_id, [KnowledgeBase(base.id, base.model, 1)], None, query_terms(question))
    async with SearchStore(library.pool, keyword_postings=1000).reader() as reader:
        return await reader.matching(target, 100)


async def exactly(library: Library, base: Base, question: str = "q", limit: int = 10) -> list[tuple[UUID, float]]:
    """What is nearest of all there is, computed here."""
    vector = np.array(vector_of(question, DIMENSIONS[base.model]), np.float32)
    rows = await library.pool.fetch(
        "SELECT chunk_id, field, embedding FROM chunk_embedding WHERE knowledge_base_id = $1 AND generation = 1",
        base.id,
    )
    cosines: dict[UUID, dict[str, float]] = {}
    for row in rows:
        other = row["embedding"].to_numpy()
        cosine = float(vector @ other / np.linalg.norm(vector) / np.linalg.norm(other))
        cosines.setdefault(row["chunk_id"], {})[row["field"]] = cosine
    scores = {chunk_id: _blended(fields) for chunk_id, fields in cosines.items()}
    return sorted(scores.items(), key=lambda item: -item[1])[:limit]


def _blended(fields: Mapping[str, float]) -> float:
    """The score of a chunk with such cosines of title and body, or of one of them."""
    body, title = fields.get("body"), fields.get("title")
    if body is None or title is None:
        return next(iter(fields.values()))
    return body * (1 - TITLE_SHARE) + title * TITLE_SHARE


async def assert_found(library: Library, base: Base, scan: Scan, question: str = "q", limit: int = 10) -> None:
    """The nearest chunks with their exact scores, found in this way."""
    used, found = await nearest(library, base, question, limit)
    expected = await exactly(library, base, question, limit)
    assert used == scan
    assert [match.chunk_id for match in found] == [chunk_id for chunk_id, _ in expected]
    assert [match.cosine for match in found] == pytest.approx([cosine for _, cosine in expected], abs=1e-6)


async def relations(pool: Pool) -> list[str]:
    rows = await pool.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'vector_indexes'::regnamespace AND relkind = 'r'"
    )
    return [row["relname"] for row in rows]


async def large_base(library: Library, indexes: VectorIndexes) -> Base:
    """A base with a built index."""
    base = await library.add_base()
    await library.add_chunks(base, LARGE)
    await sweep_until_built(indexes)
    return base


async def sweep_until_built(indexes: VectorIndexes) -> None:
    """A build waits for the transactions that were open at the registration, those of autovacuum among them."""

    async def built() -> bool:
        await indexes.sweep()
        return not await indexes._pool.fetchval("SELECT count(*) FROM vector_index WHERE due")

    assert await eventually(built)


@asynccontextmanager
async def held_build(
    library: Library, indexes: VectorIndexes, base: Base
) -> AsyncIterator[tuple[asyncio.Task[None], int]]:
    """A build of this base that has done everything but its last step, and the process id of its server; it goes on at the end."""
    await library.pool.execute("UPDATE vector_index SET due = true WHERE knowledge_base_id = $1", base.id)
    async with library.pool.acquire() as blocker, blocker.transaction():
        await blocker.execute("SELECT FROM vector_index WHERE knowledge_base_id = $1 FOR UPDATE", base.id)
        generation = (await indexes._fetch("indexed_generations"))[0]
        build = asyncio.create_task(indexes._build(generation))
        pids: list[int] = []

        async def waits() -> bool:
            pids[:] = [
                row["pid"]
                for row in await library.pool.fetch(
                    "SELECT pid FROM pg_stat_activity WHERE query LIKE '%build_vector_index(%' AND wait_event_type = 'Lock'"
                )
            ]
            return bool(pids)

        assert await eventually(waits)
        yield build, pids[0]
    await asyncio.wait([build])
