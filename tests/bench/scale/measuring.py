"""What is measured on a filled database: latencies through the service's own search, recall, completeness, size."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Final, Literal

import numpy as np
import psutil

from services.retrieval.ports import KnowledgeBase, Target
from services.retrieval.settings import RetrievalSettings, SearchSettings
from services.retrieval.store import SESSION, SearchReader, SearchStore
from shared.contracts.questions import SearchKnowledge, SearchMode, TenantScope
from shared.db.pool import AnyConnection, Pool, PoolSettings, open_pool
from tests.bench.scale.corpus import Corpus, Vectors
from tests.bench.scale.loading import MODEL, TENANT, Loaded
from tests.integration.retrieval.library import FixedEmbedder, Library
from tests.support.waiting import pause

Chosen = Literal["uniform", "by size"]

TOP_K: Final = 10
_EXACT = """
SELECT chunk_id FROM chunk_embedding WHERE knowledge_base_id = $1 AND generation = 1 ORDER BY (embedding <=> $2) + 0, chunk_id LIMIT $3
"""


@dataclass(frozen=True)
class Latencies:
    """Of one round of searches; processor time is that of the service and of the server together, whatever else runs on the machine."""

    milliseconds: Sequence[float]
    per_second: float
    cpu_ms: float

    def percentile(self, percent: float) -> float:
        return round(float(np.percentile(self.milliseconds, percent)), 2)


class Bench:
    """One database under measurement. Searches run under the account of the retrieval service, with its own pool settings."""

    def __init__(self, pool: Pool, owner: Pool, corpus: Corpus, loaded: Loaded) -> None:
        self.pool = pool
        self.owner = owner
        self._corpus = corpus
        self._sizes = loaded.sizes
        self._server_pid = loaded.server_pid

    def questions(self, number: int, count: int, *, off_topic: bool) -> list[tuple[str, Vectors]]:
        """Questions about what a base is about, or not."""
        return self._corpus.questions(number, count, off_topic=off_topic)

    async def latencies(
        self, mode: SearchMode, chosen: Chosen, clients: int, count: int, rng: Random, thinking: float = 0.0
    ) -> Latencies:
        """`count` searches for the best TOP_K, by so many clients that ask one after the other, `thinking` for some seconds in between."""
        weights = self._sizes if chosen == "by size" else None
        numbers = rng.choices(range(len(self._sizes)), weights, k=count)
        seen: dict[int, int] = {}
        questions = []
        for number in numbers:
            nth = seen[number] = seen.get(number, 0) + 1
            questions.append((number, *self._corpus.questions(number, nth)[-1]))
        vectors = {(MODEL, text): vector.tolist() for _, text, vector in questions}
        search = Library(self.pool, FixedEmbedder(vectors)).search(SearchSettings())
        waiting = iter(questions)
        taken: list[float] = []

        async def client() -> None:
            for number, text, _ in waiting:
                if thinking:
                    await pause(rng.expovariate(1 / thinking))
                scope = TenantScope(tenant_id=TENANT, knowledge_base_id=self._corpus.base_id(number))
                began = time.perf_counter()
                found = await search.answer(SearchKnowledge(scope=scope, query=text, top_k=TOP_K, mode=mode))
                taken.append((time.perf_counter() - began) * 1000)
                assert mode == "keyword" or len(found.hits) == min(TOP_K, self._sizes[number])

        began, used = time.perf_counter(), self._cpu_seconds()
        await asyncio.gather(*(client() for _ in range(clients)))
        per_second = count / (time.perf_counter() - began)
        return Latencies(taken, round(per_second, 1), round((self._cpu_seconds() - used) * 1000 / count, 2))

    def _cpu_seconds(self) -> float:
        """Used so far by this process and by all of the server's."""
        server = psutil.Process(self._server_pid)
        times = [process.cpu_times() for process in (psutil.Process(), server, *server.children())]
        return sum(one.user + one.system for one in times)

    async def recall(self, number: int, questions: Sequence[tuple[str, Vectors]]) -> float:
        """The mean share of the exact TOP_K that a search of an indexed base finds."""
        shares = []
        async with SearchStore(self.pool, SearchSettings().keyword_postings).reader() as reader:
            for _, vector in questions:
                found = await reader.nearest(self._target(number, vector), TOP_K)
                assert set(reader.scans.values()) == {"index"}
                rows = await self.owner.fetch(_EXACT, self._corpus.base_id(number), vector, TOP_K)
                shares.append(len({match.chunk_id for match in found} & {row["chunk_id"] for row in rows}) / TOP_K)
        return round(sum(shares) / len(shares), 4)

    async def indexed(self) -> list[int]:
        """The numbers of the bases that have an index."""
        rows = await self.owner.fetch("SELECT knowledge_base_id FROM vector_index WHERE relation IS NOT NULL")
        ids = {row["knowledge_base_id"] for row in rows}
        return [number for number in range(len(self._sizes)) if self._corpus.base_id(number) in ids]

    async def short(self) -> int:
        """In how many bases fewer than min(k, n) are found, of all bases, on and off their topics, for k = TOP_K and 50."""
        short = 0
        async with SearchStore(self.pool, SearchSettings().keyword_postings).reader() as reader:
            for number, size in enumerate(self._sizes):
                for off_topic, limit in ((False, TOP_K), (True, 50)):
                    ((_, vector),) = self._corpus.questions(number, 1, off_topic=off_topic)
                    found = await reader.nearest(self._target(number, vector), limit)
                    short += len(found) != min(limit, size)
        return short

    async def short_after_deletion(self, number: int, share: float, questions: int) -> tuple[int, float, float]:
        """Straight after such a share of a base was deleted: searches that are short, p95 in ms, recall. Nothing stays deleted."""
        async with self.owner.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                left = await _delete(connection, self._corpus.base_id(number), share)
                return await self._search_what_is_left(connection, number, left, questions)
            finally:
                await transaction.rollback()

    async def _search_what_is_left(
        self, connection: AnyConnection, number: int, left: int, questions: int
    ) -> tuple[int, float, float]:
        reader = SearchReader(connection, SearchSettings().keyword_postings, exact_chunks=5_000)
        short, taken, shares = 0, [], []
        for _, vector in self._corpus.questions(number, questions):
            began = time.perf_counter()
            found = await reader.nearest(self._target(number, vector), TOP_K)
            taken.append((time.perf_counter() - began) * 1000)
            rows = await connection.fetch(_EXACT, self._corpus.base_id(number), vector, TOP_K)
            shares.append(
                len({match.chunk_id for match in found} & {row["chunk_id"] for row in rows}) / max(1, len(rows))
            )
            short += len(found) != min(TOP_K, left)
        return short, round(float(np.percentile(taken, 95)), 2), round(sum(shares) / len(shares), 4)

    async def megabytes(self) -> dict[str, float]:
        """On disk: all of it, the vectors, the indexes of large bases, chunks with their keywords."""
        row = await self.owner.fetchrow(
            "SELECT pg_database_size(current_database()) AS database,"
            " pg_total_relation_size('chunk_embedding') AS vectors, pg_total_relation_size('chunk') AS chunks,"
            " coalesce((SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
            "  WHERE relnamespace = 'vector_indexes'::regnamespace AND relkind = 'r'), 0) AS vector_indexes"
        )
        return {name: round(float(size) / 2**20, 1) for name, size in row.items()} if row else {}

    def _target(self, number: int, vector: Vectors) -> Target:
        return Target(TENANT, [KnowledgeBase(self._corpus.base_id(number), MODEL)], [vector], [])


async def _delete(connection: AnyConnection, base_id: object, share: float) -> int:
    """How many chunks are left."""
    await connection.execute(
        "DELETE FROM chunk WHERE id IN (SELECT id FROM chunk WHERE knowledge_base_id = $1 ORDER BY md5(id::text)"
        " LIMIT (SELECT round($2 * count(*)) FROM chunk WHERE knowledge_base_id = $1))",
        base_id, share, timeout=600,
    )  # fmt: skip
    return int(await connection.fetchval("SELECT count(*) FROM chunk WHERE knowledge_base_id = $1", base_id))


@asynccontextmanager
async def bench_of(loaded: Loaded, corpus: Corpus) -> AsyncIterator[Bench]:
    """The pools, open for a while."""
    settings: PoolSettings = RetrievalSettings.model_fields["pool"].default
    pool = await open_pool(loaded.retrieval_url, "retrieval", settings, SESSION)
    owner = await open_pool(loaded.owner_url, "bench", PoolSettings(max_size=2, command_timeout=600))
    try:
        yield Bench(pool, owner, corpus, loaded)
    finally:
        await pool.close()
        await owner.close()
