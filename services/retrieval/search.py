"""A search, from question to hits.

1. Scope: which knowledge bases may be read. A run reads what its agent was granted, a tenant one base of its own.
2. Embed: the vectors of all wordings of the question, one batch for each embedding model among these bases. When that fails or takes too
   much of the time that is left, words alone must do, and the result says so; a dense search fails.
3. Look, for each wording: nearest chunks by vector, best chunks by words; each list is longer than what was asked for.
4. Fuse the lists, load the texts of the first candidates and assess how well each fits. When one of them has gone meanwhile, because its
   document was replaced or deleted, 3 and 4 are done again: a result always holds as many hits as there are chunks to find.
5. Rerank the candidates. A reranker that fails or is late leaves them as they were, and the result says so.
6. Cut: leave out what is below the threshold and what has the same parent as a better one, load the parents of the rest.

It ends with hits, with a CodedError that says why there are none, or by cancellation when the asker's deadline has passed.
"""

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from uuid import UUID

import numpy as np
import structlog

from services.retrieval.candidates import Assessed
from services.retrieval.choosing import Outcome, choose, result_of
from services.retrieval.finding import CandidatesGone, find_candidates
from services.retrieval.inquiry import Inquiry, Progress
from services.retrieval.ports import Embedder, Parent, Scope, Store, Target, Vector
from services.retrieval.relevance import ScoreRange
from services.retrieval.rerank_stage import RerankStage
from services.retrieval.reranking.judging import Asked
from services.retrieval.resting import RestingModels
from services.retrieval.settings import SearchSettings
from shared.contracts.questions import RunScope, SearchKnowledge, SearchResult, TenantScope
from shared.errors import CodedError
from shared.keywords import query_terms, traditional_terms
from shared.logging import log_context

log = structlog.get_logger()

_ATTEMPTS = 3
_FAIR_CHANCE = 1.0  # seconds; who is late for somebody in a greater hurry is not away
_WITHOUT_WORDS = 0.9  # part of the time left that vectors may take where nothing can be done without them


class RunNotFound(CodedError):
    """No such run, or it is finished."""

    code = "run_not_found"


class KnowledgeBaseNotFound(CodedError):
    """The tenant has no such knowledge base."""

    code = "knowledge_base_not_found"


class EmbeddingLate(CodedError):
    """The embedding model is slower than the asker is patient."""

    code = "embedding_unavailable"
    retryable = True


class ChunksChanging(CodedError):
    """Documents are replaced faster than they can be searched."""

    code = "documents_changing"
    retryable = True


class Search:
    """Answers questions, `max_concurrent` of them at once. `ranges` are the score ranges of the embedding models."""

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        settings: SearchSettings,
        reranking: RerankStage | None = None,
        ranges: Mapping[str, ScoreRange] | None = None,
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._settings = settings
        self._reranking = reranking or RerankStage(settings)
        self._ranges = ranges or {}
        self._resting = RestingModels(settings.embedding_rest)
        self._turns = asyncio.Semaphore(settings.max_concurrent)

    async def answer(self, question: SearchKnowledge, seconds: float = math.inf) -> SearchResult:
        """The hits, best first, for an asker who waits for so many seconds. Raises CodedError."""
        run_id = question.scope.run_id if isinstance(question.scope, RunScope) else None
        ends = time.monotonic() + seconds
        with log_context(request_id=question.request_id, run_id=run_id):
            async with self._turns:
                return await self._answer(question, Progress(ends))

    async def _answer(self, question: SearchKnowledge, progress: Progress) -> SearchResult:
        scope = await self._scope(question.scope)
        progress.passed("scope")
        with log_context(tenant_id=scope.tenant_id):
            inquiry = await self._inquiry(question, scope, progress)
            progress.passed("embed")
            outcome = await self._outcome(inquiry, progress) if scope.bases else Outcome(Asked("", (), np.zeros(0)))
            log.info(
                "search.finished",
                mode=question.mode,
                rerank=outcome.reranker,
                knowledge_bases=len(scope.bases),
                wordings=len(inquiry.wordings),
                terms=len(inquiry.wordings[0][1]),
                hits=len(outcome.chosen),
                degraded=progress.degraded,
                ms=progress.ms,
            )
        return result_of(outcome, inquiry, progress.degraded)

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

    async def _inquiry(self, question: SearchKnowledge, scope: Scope, progress: Progress) -> Inquiry:
        texts = list(dict.fromkeys((question.query, *question.queries)))
        vectors = await self._vectors(question, texts, scope, progress)
        wordings = [(text, query_terms(text, limit=self._settings.keyword_terms)) for text in texts]
        targets = [
            Target(
                tenant_id=scope.tenant_id,
                bases=scope.bases,
                vectors=None if vectors is None else [vectors[base.embedding_model][index] for base in scope.bases],
                terms=[] if question.mode == "dense" else [*terms, *traditional_terms(text)],
                filter=question.filter,
            )
            for index, (text, terms) in enumerate(wordings)
        ]
        ranges = {base.id: self._ranges.get(base.embedding_model, ScoreRange()) for base in scope.bases}
        return Inquiry(question, scope, wordings, targets, ranges)

    async def _vectors(
        self, question: SearchKnowledge, texts: Sequence[str], scope: Scope, progress: Progress
    ) -> Mapping[str, Sequence[Vector]] | None:
        """The vectors of all wordings by model; None when there are none and words must do."""
        models = list(dict.fromkeys(base.embedding_model for base in scope.bases))
        if question.mode == "dense":
            return await self._embed_or_fail(models, texts, progress)
        if self._resting.any_of(models):
            _without_embeddings("resting", progress)
            return None
        try:
            return await self._embed(models, texts, progress.seconds(self._settings.embedding_share))
        except (CodedError, TimeoutError) as error:
            _without_embeddings(error.code if isinstance(error, CodedError) else "late", progress)
            return None

    async def _embed_or_fail(
        self, models: Sequence[str], texts: Sequence[str], progress: Progress
    ) -> Mapping[str, Sequence[Vector]]:
        """As `_embed`. What takes nearly all of the asker's time fails before that: nobody could tell the cause afterwards."""
        try:
            return await self._embed(models, texts, progress.seconds(_WITHOUT_WORDS))
        except TimeoutError as error:
            raise EmbeddingLate("the embedding model doesn't answer in time") from error

    async def _embed(
        self, models: Sequence[str], texts: Sequence[str], seconds: float | None
    ) -> Mapping[str, Sequence[Vector]]:
        """The vectors of each model, all within so many seconds. Raises CodedError, TimeoutError."""
        embedded = await asyncio.gather(*(self._embed_by(model, texts, seconds) for model in models))
        return dict(zip(models, embedded, strict=True))

    async def _embed_by(self, model: str, texts: Sequence[str], seconds: float | None) -> Sequence[Vector]:
        try:
            async with asyncio.timeout(seconds):
                vectors = await self._embedder.embed(model, texts)
        except CodedError as error:
            if error.retryable:  # else it is the text or the configuration
                self._resting.failed(model)
            raise
        except TimeoutError:
            if seconds is not None and seconds >= _FAIR_CHANCE:
                self._resting.failed(model)
            raise
        self._resting.worked(model)
        return vectors

    async def _outcome(self, inquiry: Inquiry, progress: Progress) -> Outcome:
        question = inquiry.question
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                async with self._store.reader() as reader:
                    pool = await find_candidates(inquiry, reader, self._settings, progress, patient=attempt < _ATTEMPTS)
                    scans = dict(reader.scans)
            except CandidatesGone:
                continue
            reranked = await self._reranking.rerank(question, pool, progress)
            progress.passed("rerank")
            chosen, left_out = choose(reranked.assessed, question.top_k, question.min_score)
            parents = await self._parents(inquiry.scope.tenant_id, chosen)
            if parents is not None:
                return Outcome(pool.asked, chosen, left_out, parents, reranked.by, scans, pool.scales)
        raise ChunksChanging("documents are being replaced")

    async def _parents(self, tenant_id: UUID, chosen: Sequence[Assessed]) -> Mapping[UUID, Parent] | None:
        """Their parents; None when some have gone meanwhile."""
        parent_ids = [one.unit for one in chosen if one.candidate.passage.parent_id]
        if not parent_ids:
            return {}
        async with self._store.reader() as reader:
            parents = await reader.load_parents(tenant_id, parent_ids)
        return parents if len(parents) == len(parent_ids) else None


def _without_embeddings(cause: str, progress: Progress) -> None:
    log.warning("search.degraded", without="embeddings", cause=cause)
    progress.degrade("embeddings_unavailable")


def _narrowed(granted: Scope, asked: Sequence[UUID]) -> Scope:
    """The granted bases that were asked for; what was asked for beyond them is refused silently, but logged."""
    known = {base.id for base in granted.bases}
    if refused := [str(base_id) for base_id in dict.fromkeys(asked) if base_id not in known]:
        log.warning("grant.refused", tenant_id=str(granted.tenant_id), knowledge_base_ids=refused)
    wanted = set(asked)
    return Scope(granted.tenant_id, tuple(base for base in granted.bases if base.id in wanted))
