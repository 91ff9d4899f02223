"""Hits as askers see them, and why they are what they are."""

from collections.abc import Sequence

from services.retrieval.candidates import Assessed
from services.retrieval.ports import Parent
from services.retrieval.quotes import best_quote
from services.retrieval.ranking import Ranked, Source, Standing
from services.retrieval.reranking.judging import Asked
from shared.contracts.questions import Hit, HitExplanation, Place, RerankExplanation


def make_hit(asked: Asked, one: Assessed, parent: Parent | None, explanation: HitExplanation | None) -> Hit:
    """The chunk as a hit, or its parent with a quote out of the chunk."""
    passage = one.candidate.passage
    shown = parent or passage
    return Hit(
        chunk_id=passage.chunk_id,
        document_id=passage.document_id,
        knowledge_base_id=passage.knowledge_base_id,
        filename=passage.filename,
        version=passage.version,
        ordinal=passage.ordinal,
        title=shown.title,
        heading_path=shown.heading_path,
        content=shown.content,
        char_start=shown.char_start,
        char_end=shown.char_end,
        header_chars=shown.header_chars,
        page_first=shown.page_first,
        page_last=shown.page_last,
        score=one.relevance.score,
        quote=best_quote(passage, one.candidate.content, asked.terms, asked.weights.tolist()),
        parent_id=parent.id if parent else None,
        explanation=explanation,
    )


def explain(one: Assessed, reranker: str) -> HitExplanation:
    """The places in all lists, the judgement of the reranker, the parts of the score."""
    ranked = one.candidate.ranked
    dense, keyword = _own(ranked, "dense"), _own(ranked, "keyword")
    return HitExplanation(
        dense_rank=dense.rank if dense else None,
        dense_score=dense.score if dense else None,
        keyword_rank=keyword.rank if keyword else None,
        keyword_score=keyword.score if keyword else None,
        fused_score=ranked.fused,
        places=tuple(_place(standing) for standing in ranked.standings),
        rerank=_rerank(one, reranker),
        score_parts=one.relevance.parts,
    )


def _own(ranked: Ranked, source: Source) -> Standing | None:
    """The place in the list of the question itself."""
    standings: Sequence[Standing] = ranked.standings
    return next((place for place in standings if place.source == source and place.wording == 0), None)


def _place(standing: Standing) -> Place:
    return Place(
        source=standing.source,
        wording=standing.wording,
        rank=standing.rank,
        score=standing.score,
        contribution=standing.contribution,
    )


def _rerank(one: Assessed, reranker: str) -> RerankExplanation | None:
    if one.judgement is None:
        return None
    return RerankExplanation(
        by=reranker,
        rank_before=one.rank_before,
        score=one.judgement.score,
        features=dict(one.judgement.features),
    )
