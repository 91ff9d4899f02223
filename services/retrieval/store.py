"""What searches read from PostgreSQL. Nothing is written here."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import accumulate, pairwise
from pathlib import Path
from uuid import UUID

import asyncpg
from pgvector import Vector

from services.retrieval.ranking import BM25_B, BM25_K1, DenseMatch, KeywordMatch, Ranked
from services.retrieval.search import KnowledgeBase, Scope, Target
from shared.contracts.questions import Hit
from shared.db.pool import DATABASE_TROUBLE, AnyConnection, Pool
from shared.db.queries import load_queries
from shared.errors import CodedError
from shared.keyword_vector import MAX_FREQUENCY, keyword_query_text

SQL = load_queries(Path(__file__).with_name("queries.sql"))


class DatabaseUnavailable(CodedError):
    """The database is away or too busy."""

    code = "database_unavailable"
    retryable = True


class VectorsDiffer(CodedError):
    """The knowledge base was embedded with another dimension than its model has now."""

    code = "embedding_dimension_differs"


def _frequency_bounds() -> list[float]:
    """From which rank of ts_rank on a term's frequency is 1, 2, ... MAX_FREQUENCY.

    For one term at n positions, all of weight 1, ts_rank is the sum of 1/i^2 for i = 1..n, over pi^2/6 (PostgreSQL, tsrank.c:
    calc_rank_or); the bounds lie half way between two frequencies.
    """
    ranks = [total / 1.64493406685 for total in accumulate(1 / n**2 for n in range(1, MAX_FREQUENCY + 1))]
    return [0.0, *((low + high) / 2 for low, high in pairwise(ranks))]


_FREQUENCY_BOUNDS = _frequency_bounds()


class SearchStore:
    """Searches' view of the database. `keyword_postings` is how many occurrences of terms a search reads."""

    def __init__(self, pool: Pool, keyword_postings: int) -> None:
        self._pool = pool
        self._keyword_postings = keyword_postings

    async def run_scope(self, run_id: UUID) -> Scope | None:
        """What the run's agent was granted; None for an unknown or finished run."""
        with _translated():
            return _scope(await self._pool.fetch(SQL["run_scope"], run_id))

    async def tenant_scope(self, tenant_id: UUID, knowledge_base_id: UUID) -> Scope | None:
        """One knowledge base of a tenant; None when the tenant has no such base."""
        with _translated():
            return _scope(await self._pool.fetch(SQL["tenant_scope"], tenant_id, knowledge_base_id))

    @asynccontextmanager
    async def reader(self) -> AsyncIterator["SearchReader"]:
        """A connection for one search."""
        with _translated():
            async with self._pool.acquire() as connection:
                yield SearchReader(connection, self._keyword_postings)


class SearchReader:
    """One connection. No transaction: each statement sees one state of the database, and the search notices when it has moved on."""

    def __init__(self, connection: AnyConnection, keyword_postings: int) -> None:
        self._connection = connection
        self._keyword_postings = keyword_postings

    async def nearest(self, target: Target, limit: int) -> list[DenseMatch]:
        """The chunks nearest to the question, exactly; fewer than `limit` only when there are no more."""
        rows = await self._connection.fetch(
            SQL["nearest_chunks"], target.tenant_id, target.base_ids, _vectors(target), limit
        )
        return [DenseMatch(row["chunk_id"], row["cosine"]) for row in rows]

    async def matching(self, target: Target, limit: int) -> list[KeywordMatch]:
        """The chunks that match the question's terms best."""
        rows = await self._connection.fetch(
            SQL["matching_chunks"],
            target.tenant_id,
            target.base_ids,
            _vectors(target),
            [keyword_query_text(term) for term in target.terms],
            limit,
            self._keyword_postings,
            BM25_K1,
            BM25_B,
            _FREQUENCY_BOUNDS,
        )
        return [KeywordMatch(row["chunk_id"], row["bm25"], row["cosine"]) for row in rows]

    async def load(self, tenant_id: UUID, ranked: Sequence[Ranked]) -> Mapping[UUID, Hit]:
        """The chunks that are still there, by id."""
        cosines = {one.chunk_id: one.cosine for one in ranked}
        rows = await self._connection.fetch(SQL["load_chunks"], tenant_id, list(cosines))
        return {row["id"]: _hit(row, cosines[row["id"]]) for row in rows}


def _vectors(target: Target) -> list[Vector]:
    """As pgvector's type: an array among the elements of an array would be taken for a further dimension."""
    return [Vector(vector) for vector in target.vectors]


def _scope(rows: Sequence[asyncpg.Record]) -> Scope | None:
    if not rows:
        return None
    bases = tuple(KnowledgeBase(row["id"], row["embedding_model"]) for row in rows if row["id"] is not None)
    return Scope(rows[0]["tenant_id"], bases)


def _hit(row: asyncpg.Record, cosine: float) -> Hit:
    return Hit(
        chunk_id=row["id"],
        document_id=row["document_id"],
        knowledge_base_id=row["knowledge_base_id"],
        filename=row["filename"],
        version=row["version"],
        ordinal=row["ordinal"],
        title=row["title"],
        heading_path=tuple(row["heading_path"]),
        content=row["content"],
        char_start=row["char_start"],
        char_end=row["char_end"],
        score=cosine,
    )


@contextmanager
def _translated() -> Iterator[None]:
    """PostgreSQL's trouble as errors with codes."""
    try:
        yield
    except DATABASE_TROUBLE as error:
        raise DatabaseUnavailable(f"the database doesn't answer ({type(error).__name__})") from error
    except asyncpg.DataError as error:
        if "different vector dimensions" not in str(error):
            raise
        raise VectorsDiffer("a knowledge base was embedded with another dimension than its model has now") from error
