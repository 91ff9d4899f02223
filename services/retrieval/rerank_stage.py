"""Reranking as a stage of a search: which reranker, over how many candidates, and what happens when it fails."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from services.retrieval.candidates import Assessed, Pool
from services.retrieval.inquiry import Progress
from services.retrieval.reranking.judging import Judgement, Reranker
from services.retrieval.reranking.lexical import LexicalReranker
from services.retrieval.settings import SearchSettings
from shared.contracts.questions import RerankMode, SearchKnowledge
from shared.errors import CodedError

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Reranked:
    """Candidates in their new order, and who put them into it: "off" for nobody."""

    assessed: Sequence[Assessed]
    by: str = "off"


class RerankStage:
    """The rerankers that there are, by mode."""

    def __init__(self, settings: SearchSettings, model: Reranker | None = None) -> None:
        self._settings = settings
        self._rerankers: Mapping[RerankMode, Reranker | None] = {"lexical": LexicalReranker(), "model": model}

    async def rerank(self, question: SearchKnowledge, pool: Pool, progress: Progress) -> Reranked:
        """The first `rerank_candidates` in the reranker's order, then the rest as it was.

        A mode other than hybrid is what its name says, unless a reranker is asked for.
        """
        mode = question.rerank or (self._settings.rerank if question.mode == "hybrid" else "off")
        if mode == "off" or not pool.assessed:
            return Reranked(pool.assessed)
        reranker = self._rerankers[mode]
        count = self._settings.rerank_candidates
        first, rest = pool.assessed[:count], pool.assessed[count:]
        try:
            if reranker is None:
                raise CodedError("the models file names no reranking model", code="no_rerank_model")
            async with asyncio.timeout(progress.seconds(self._settings.rerank_share)):
                judgements = await reranker.judge(pool.asked, [one.candidate for one in first])
        except (CodedError, TimeoutError) as error:
            cause = error.code if isinstance(error, CodedError) else "late"
            log.warning("search.degraded", without="rerank", cause=cause)
            progress.degrade("rerank_unavailable")
            return Reranked(pool.assessed)
        return Reranked([*_in_order(first, judgements), *rest], reranker.name)


def _in_order(assessed: Sequence[Assessed], judgements: Sequence[Judgement]) -> list[Assessed]:
    """Best first; equals stay in the order that they had."""
    judged = [one._replace(judgement=judgement) for one, judgement in zip(assessed, judgements, strict=True)]
    return sorted(judged, key=lambda one: -one.judgement.score if one.judgement else 0.0)
