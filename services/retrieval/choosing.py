"""The last stage: which candidates become hits, and the answer that is made of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from services.retrieval.candidates import Assessed
from services.retrieval.explaining import explain, make_hit
from services.retrieval.inquiry import Inquiry
from services.retrieval.ports import Parent, Scan
from services.retrieval.ranking import Scale
from services.retrieval.reranking.judging import Asked
from shared.contracts.questions import FusionScale, LeftOut, SearchedBase, SearchExplanation, SearchResult

_MOST_LEFT_OUT = 20

Reason = Literal["below_min_score", "same_parent", "beyond_top_k"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search came to: hits, best first, and the best of what is none."""

    asked: Asked
    chosen: Sequence[Assessed] = ()
    left_out: Sequence[tuple[Assessed, Reason]] = ()
    parents: Mapping[UUID, Parent] | None = None
    reranker: str = "off"
    scans: Mapping[UUID, Scan] | None = None
    scales: Sequence[Scale] = ()


def choose(
    assessed: Sequence[Assessed], top_k: int, min_score: float | None
) -> tuple[list[Assessed], list[tuple[Assessed, Reason]]]:
    """The first `top_k` that fit, one for each parent, and all others with the reason."""
    chosen: dict[UUID, Assessed] = {}
    left_out: list[tuple[Assessed, Reason]] = []
    for one in assessed:
        if not one.fits(min_score):
            left_out.append((one, "below_min_score"))
        elif one.unit in chosen:
            left_out.append((one, "same_parent"))
        elif len(chosen) == top_k:
            left_out.append((one, "beyond_top_k"))
        else:
            chosen[one.unit] = one
    return list(chosen.values()), left_out


def result_of(outcome: Outcome, inquiry: Inquiry, degraded: Sequence[str]) -> SearchResult:
    """The answer, explained when that was asked for."""
    explained = inquiry.question.explain
    parents = outcome.parents or {}
    hits = tuple(
        make_hit(
            outcome.asked,
            one,
            parents.get(one.unit),
            explain(one, outcome.reranker) if explained else None,
        )
        for one in outcome.chosen
    )
    return SearchResult(
        hits=hits, degraded=tuple(degraded), explanation=_explanation(outcome, inquiry) if explained else None
    )


def _explanation(outcome: Outcome, inquiry: Inquiry) -> SearchExplanation:
    scans = outcome.scans or {}
    return SearchExplanation(
        mode=inquiry.question.mode,
        rerank=outcome.reranker,
        filter=inquiry.question.filter,
        terms=tuple(inquiry.wordings[0][1]),
        bases=tuple(
            SearchedBase(
                knowledge_base_id=base.id,
                embedding_model=base.embedding_model,
                embedding_generation=base.embedding_generation,
                scan=scans.get(base.id),
            )
            for base in inquiry.scope.bases
        ),
        scales=tuple(
            FusionScale(source=scale.source, wording=scale.wording, low=scale.low, high=scale.high, weight=scale.weight)
            for scale in outcome.scales
        ),
        left_out=tuple(
            LeftOut(
                chunk_id=one.candidate.passage.chunk_id,
                reason=reason,
                score=one.relevance.score,
                explanation=explain(one, outcome.reranker),
            )
            for one, reason in outcome.left_out[:_MOST_LEFT_OUT]
        ),
    )
