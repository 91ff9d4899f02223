"""A search, from question to hits.

1. Scope: which knowledge bases may be read. A run reads what its agent was granted, a tenant one base of its own.
2. Embed: the question's vector, once for each embedding model among these bases.
3. Look: nearest chunks by vector, best chunks by words; each list is longer than what was asked for.
4. Rank: fuse the lists, drop what is below the threshold, cut.
5. Load: the chunks' texts. When one of them has gone meanwhile, because its document was replaced or deleted, 3 to 5 are done again: a
   result always holds as many hits as there are chunks to find.

It ends with hits, with a CodedError that says why there are none, or by cancellation when the asker's deadline has passed.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias
from uuid import UUID

import numpy as np
import structlog
from numpy.typing import NDArray

from services.retrieval.ranking import DenseMatch, KeywordMatch, Ranked, cut, fuse
from services.retrieval.settings import SearchSettings
from shared.contracts.questions import Hit, HitExplanation, RunScope, SearchKnowledge, SearchResult, TenantScope
from shared.errors import CodedError
from shared.keywords import query_terms
from shared.logging import log_context

log = structlog.get_logger()

Vector: TypeAlias = NDArray[np.float32]

_ATTEMPTS = 3


class RunNotFound(CodedError):
    """No such run, or it is finished."""

    code = "run_not_found"


class KnowledgeBaseNotFound(CodedError):
    """The tenant has no such knowledge base."""

    code = "knowledge_base_not_found"


class ChunksChanging(CodedError):
    """Documents are replaced faster than they can be searched."""

    code = "documents_changing"
    retryable = True


@dataclass(frozen=True, slots=True)
class KnowledgeBase:
    """A knowledge base that may be searched, and the name of the model that embeds it."""

    id: UUID
    embedding_model: str


@dataclass(frozen=True, slots=True)
class Scope:
    """What may be read, all of one tenant."""

    tenant_id: UUID
    bases: tuple[KnowledgeBase, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """What is searched for and where: `vectors[i]` is the question as the model of `base_ids[i]` sees it."""

    tenant_id: UUID
    base_ids: Sequence[UUID]
    vectors: Sequence[Vector]
    terms: Sequence[str]


class Embedder(Protocol):
    """The vector of a question."""

    async def embed(self, model: str, query: str) -> Vector: ...


class Reader(Protocol):
    """One database connection, for the time of one search. Matches come best first."""

    async def nearest(self, target: Target, limit: int) -> list[DenseMatch]: ...

    async def matching(self, target: Target, limit: int) -> list[KeywordMatch]: ...

    async def load(self, tenant_id: UUID, ranked: Sequence[Ranked]) -> Mapping[UUID, Hit]: ...


class Store(Protocol):
    """What searches read."""

    async def run_scope(self, run_id: UUID) -> Scope | None: ...

    async def tenant_scope(self, tenant_id: UUID, knowledge_base_id: UUID) -> Scope | None: ...

    def reader(self) -> AbstractAsyncContextManager[Reader]: ...


class Search:
    """Answers questions, `max_concurrent` of them at once."""

    def __init__(self, store: Store, embedder: Embedder, settings: SearchSettings) -> None:
        self._store = store
        self._embedder = embedder
        self._settings = settings
        self._turns = asyncio.Semaphore(settings.max_concurrent)

    async def answer(self, question: SearchKnowledge) -> SearchResult:
        """The hits, best first. Raises CodedError."""
        run_id = question.scope.run_id if isinstance(question.scope, RunScope) else None
        with log_context(request_id=question.request_id, run_id=run_id):
            async with self._turns:
                return await self._answer(question)

    async def _answer(self, question: SearchKnowledge) -> SearchResult:
        stages = _Stages()
        scope = await self._scope(question.scope)
        stages.passed("scope")
        with log_context(tenant_id=scope.tenant_id):
            target = await self._target(question, scope)
            stages.passed("embed")
            hits = await self._hits(question, target, stages) if target.base_ids else ()
            log.info(
                "search.finished",
                mode=question.mode,
                knowledge_bases=len(target.base_ids),
                terms=len(target.terms),
                hits=len(hits),
                ms=stages.ms,
            )
        return SearchResult(hits=hits)

    async def _scope(self, asked: RunScope | TenantScope) -> Scope:
        if isinstance(asked, TenantScope):
            own = await self._store.tenant_scope(asked.tenant_id, asked.knowledge_base_id)
            if own is None:
                raise KnowledgeBaseNotFound("no such knowledge base")
            return own
        granted = await self._store.run_scope(asked.run_id)
        if granted is None:
            raise RunNotFound("no such run, or it is finished")
        return granted if asked.knowledge_base_ids is None else _narrowed(granted, asked.knowledge_base_ids)

    async def _target(self, question: SearchKnowledge, scope: Scope) -> Target:
        models = list(dict.fromkeys(base.embedding_model for base in scope.bases))
        embedded = await asyncio.gather(*(self._embedder.embed(model, question.query) for model in models))
        vectors = dict(zip(models, embedded, strict=True))
        return Target(
            tenant_id=scope.tenant_id,
            base_ids=[base.id for base in scope.bases],
            vectors=[vectors[base.embedding_model] for base in scope.bases],
            terms=[] if question.mode == "dense" else query_terms(question.query, limit=self._settings.keyword_terms),
        )

    async def _hits(self, question: SearchKnowledge, target: Target, stages: "_Stages") -> tuple[Hit, ...]:
        async with self._store.reader() as reader:
            for _ in range(_ATTEMPTS):
                ranked = await self._ranked(question, target, reader, stages)
                found = await reader.load(target.tenant_id, ranked)
                stages.passed("load")
                if len(found) == len(ranked):
                    return tuple(_hit(found[one.chunk_id], one, explain=question.explain) for one in ranked)
                log.info("search.repeated", gone=len(ranked) - len(found))
        raise ChunksChanging("documents are being replaced")

    async def _ranked(
        self, question: SearchKnowledge, target: Target, reader: Reader, stages: "_Stages"
    ) -> list[Ranked]:
        limit = max(self._settings.candidates, self._settings.candidates_per_hit * question.top_k)
        dense: list[DenseMatch] = []
        keyword: list[KeywordMatch] = []
        if question.mode != "keyword":
            # Without a second list to fuse with, and the threshold on the same scale, what is below the cut can't rise above it.
            dense = await reader.nearest(target, question.top_k if question.mode == "dense" else limit)
            stages.passed("dense")
        if target.terms:
            keyword = await reader.matching(target, limit)
            stages.passed("keyword")
        return cut(fuse(dense, keyword), question.top_k, question.min_score)


def _narrowed(granted: Scope, asked: Sequence[UUID]) -> Scope:
    """The granted bases that were asked for; what was asked for beyond them is refused silently, but logged."""
    known = {base.id for base in granted.bases}
    if refused := [str(base_id) for base_id in dict.fromkeys(asked) if base_id not in known]:
        log.warning("grant.refused", tenant_id=str(granted.tenant_id), knowledge_base_ids=refused)
    wanted = set(asked)
    return Scope(granted.tenant_id, tuple(base for base in granted.bases if base.id in wanted))


def _hit(found: Hit, ranked: Ranked, *, explain: bool) -> Hit:
    if not explain:
        return found
    explanation = HitExplanation(
        dense_rank=ranked.dense_rank,
        dense_score=None if ranked.dense_rank is None else ranked.cosine,
        keyword_rank=ranked.keyword_rank,
        keyword_score=ranked.bm25,
        fused_score=ranked.fused,
    )
    return found.model_copy(update={"explanation": explanation})


class _Stages:
    """Milliseconds by stage; a stage that is passed again adds up."""

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self.ms: dict[str, float] = {}

    def passed(self, stage: str) -> None:
        now = time.perf_counter()
        self.ms[stage] = round(self.ms.get(stage, 0.0) + (now - self._since) * 1000, 2)
        self._since = now
