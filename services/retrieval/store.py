"""What searches read from PostgreSQL. Nothing is written here."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import accumulate, pairwise
from pathlib import Path
from uuid import UUID

import asyncpg
from pgvector import Vector

from services.retrieval.ports import KnowledgeBase, Parent, Passage, Scan, Scope, Target
from services.retrieval.ranking import BM25_B, BM25_K1, TITLE_SHARE, DenseMatch, KeywordMatch
from shared.contracts.questions import SearchFilter
from shared.db.pool import DATABASE_TROUBLE, AnyConnection, Pool
from shared.db.queries import load_queries
from shared.errors import CodedError
from shared.keyword_vector import MAX_FREQUENCY, keyword_query_text

# Planning takes longer than searching a small base. The statements suit every question: by index, whatever the statistics say, which
# may be those of an empty database.
SESSION: Mapping[str, str] = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off", "jit": "off"}
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
    """Searches' view of the database.

    `keyword_postings` is how many occurrences of terms a search reads, `exact_chunks` up to how many chunks that a filter lets through are
    all compared with the question, index or not.
    """

    def __init__(self, pool: Pool, keyword_postings: int, exact_chunks: int = 5_000) -> None:
        self._pool = pool
        self._keyword_postings = keyword_postings
        self._exact_chunks = exact_chunks

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
                yield SearchReader(connection, self._keyword_postings, self._exact_chunks)


class SearchReader:
    """One connection. No transaction: each statement sees one state of the database, and the search notices when it has moved on."""

    def __init__(self, connection: AnyConnection, keyword_postings: int, exact_chunks: int) -> None:
        self._connection = connection
        self._keyword_postings = keyword_postings
        self._exact_chunks = exact_chunks
        self._scans: dict[UUID, Scan] = {}
        self._term_weights: dict[str, float] = {}

    async def nearest(self, target: Target, limit: int) -> list[DenseMatch]:
        """The chunks nearest to the question; fewer than `limit` only when there are no more."""
        where = _place(target)
        if target.filter is None:
            rows = await self._connection.fetch(SQL["nearest_chunks"], *where, limit, TITLE_SHARE)
        else:
            conditions = _conditions(target.filter)
            rows = await self._connection.fetch(
                SQL["nearest_filtered_chunks"], *where, limit, *conditions, self._exact_chunks, TITLE_SHARE
            )
        indexed = set(rows[0]["indexed"]) if rows else set()
        for base in target.bases:
            self._scans[base.id] = "index" if base.id in indexed else "exact"
        return [DenseMatch(row["chunk_id"], row["cosine"]) for row in rows]

    async def matching(self, target: Target, limit: int) -> list[KeywordMatch]:
        """The chunks that match the question's terms best."""
        rows = await self._connection.fetch(
            SQL["matching_chunks"],
            *_place(target),
            [keyword_query_text(term) for term in target.terms],
            limit,
            self._keyword_postings,
            BM25_K1,
            BM25_B,
            _FREQUENCY_BOUNDS,
            target.filter is not None,
            *_conditions(target.filter or SearchFilter()),
            TITLE_SHARE,
        )
        if rows:
            self._term_weights |= zip(target.terms, rows[0]["term_weights"], strict=True)
        known = target.vectors is not None
        return [KeywordMatch(row["chunk_id"], row["bm25"], row["cosine"] if known else None) for row in rows]

    async def load(self, tenant_id: UUID, chunk_ids: Sequence[UUID]) -> Mapping[UUID, Passage]:
        """The chunks that are still there, by id."""
        rows = await self._connection.fetch(SQL["load_chunks"], tenant_id, chunk_ids)
        return {row["id"]: _passage(row) for row in rows}

    async def load_parents(self, tenant_id: UUID, parent_ids: Sequence[UUID]) -> Mapping[UUID, Parent]:
        """The parents that are still there, by id."""
        rows = await self._connection.fetch(SQL["load_parents"], tenant_id, parent_ids)
        return {row["id"]: _parent(row) for row in rows}

    @property
    def scans(self) -> Mapping[UUID, Scan]:
        """How `nearest` went through each knowledge base so far."""
        return self._scans

    @property
    def term_weights(self) -> Mapping[str, float]:
        """What the terms that `matching` looked for so far are worth: their idf."""
        return self._term_weights


def _place(target: Target) -> tuple[UUID, list[UUID], list[int], list[Vector | None]]:
    """Where is searched, and for what: the first parameters of a search.

    Vectors are of pgvector's type: an array among the elements of an array would be taken for a further dimension.
    """
    ids = [base.id for base in target.bases]
    generations = [base.embedding_generation for base in target.bases]
    vectors: list[Vector | None] = [None] * len(ids)
    if target.vectors is not None:
        vectors = [Vector(vector) for vector in target.vectors]
    return target.tenant_id, ids, generations, vectors


def _conditions(wanted: SearchFilter) -> tuple[object, ...]:
    """A filter as parameters."""
    return (
        wanted.document_ids,
        wanted.media_types,
        wanted.tags,
        wanted.tags_any,
        wanted.date_from,
        wanted.date_to,
    )


def _scope(rows: Sequence[asyncpg.Record]) -> Scope | None:
    if not rows:
        return None
    bases = tuple(
        KnowledgeBase(row["id"], row["embedding_model"], row["embedding_generation"])
        for row in rows
        if row["id"] is not None
    )
    return Scope(rows[0]["tenant_id"], bases)


def _passage(row: asyncpg.Record) -> Passage:
    return Passage(
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
        parent_id=row["parent_id"],
        header_chars=row["header_chars"],
        page_first=row["page_first"],
        page_last=row["page_last"],
    )


def _parent(row: asyncpg.Record) -> Parent:
    return Parent(
        id=row["id"],
        title=row["title"],
        heading_path=tuple(row["heading_path"]),
        content=row["content"],
        char_start=row["char_start"],
        char_end=row["char_end"],
        header_chars=row["header_chars"],
        page_first=row["page_first"],
        page_last=row["page_last"],
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
