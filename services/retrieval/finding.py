"""Finding candidates: look for each wording, fuse, load the first texts, assess them.

Looking again with longer lists is for children of few parents: fifty neighbours may all belong to one.
"""

from collections.abc import Sequence
from dataclasses import replace

import structlog

from services.retrieval.candidates import Pool, assess, units
from services.retrieval.inquiry import Inquiry, Progress
from services.retrieval.ports import Reader
from services.retrieval.ranking import MatchList, Ranked, fuse
from services.retrieval.settings import SearchSettings

log = structlog.get_logger()

_WIDER = 4


class CandidatesGone(Exception):
    """Some of the best chunks were replaced or deleted between two statements."""


async def find_candidates(
    inquiry: Inquiry, reader: Reader, settings: SearchSettings, progress: Progress, *, patient: bool
) -> Pool:
    """The first candidates, enough of them for as many hits as there are.

    Raises CandidatesGone for any candidate that has gone meanwhile or, not being patient any more, for one that would be a hit.
    """
    wanted, min_score = inquiry.question.top_k, inquiry.question.min_score
    limit = settings.limit(wanted)
    while True:
        lists = await _look(inquiry, reader, limit, progress)
        fusion = fuse(lists)
        ranked = fusion.ranked
        first = ranked[: max(wanted, settings.rerank_candidates)]
        pool = await _load(inquiry, reader, first, progress, patient=patient)
        if len(ranked) > len(first) and units(pool.assessed, min_score) < wanted:
            pool = await _load(inquiry, reader, ranked, progress, patient=patient)
        if not _has_more(pool, lists, limit, wanted):
            return replace(pool, scales=fusion.scales)
        limit *= _WIDER


async def _look(inquiry: Inquiry, reader: Reader, limit: int, progress: Progress) -> list[MatchList]:
    lists: list[MatchList] = []
    for wording, target in enumerate(inquiry.targets):
        if inquiry.question.mode != "keyword" and target.vectors is not None:
            lists.append(MatchList("dense", wording, await reader.nearest(target, limit)))
            progress.passed("dense")
        if target.terms:
            matches = await reader.matching(target, limit)
            asked = sum(reader.term_weights.get(term, 0.0) for term in inquiry.wordings[wording][1])
            lists.append(MatchList("keyword", wording, matches, asked))
            progress.passed("keyword")
    return lists


async def _load(
    inquiry: Inquiry, reader: Reader, ranked: Sequence[Ranked], progress: Progress, *, patient: bool
) -> Pool:
    passages = await reader.load(inquiry.scope.tenant_id, [one.chunk_id for one in ranked])
    progress.passed("load")
    gone = [rank for rank, one in enumerate(ranked) if one.chunk_id not in passages]
    if gone and (patient or gone[0] < inquiry.question.top_k):
        log.info("search.repeated", gone=len(gone))
        raise CandidatesGone
    return assess(inquiry.wordings, ranked, passages, inquiry.ranges, reader.term_weights)


def _has_more(pool: Pool, lists: Sequence[MatchList], limit: int, wanted: int) -> bool:
    """Whether further chunks may lead to further parents, and these are wanted."""
    has_parents = any(one.candidate.passage.parent_id for one in pool.assessed)
    is_full = any(len(found.matches) >= limit for found in lists)
    return has_parents and is_full and units(pool.assessed, None) < wanted
