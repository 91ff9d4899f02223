"""How results are ranked: two lists, by meaning and by words, fused by rank.

* By meaning ("dense"): cosine similarity of question and chunk, the best of the chunk's title and body.
* By words ("keyword"): BM25 (Robertson & Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009) with BM25_K1 and BM25_B
  and the idf that is never negative, ln(1 + (n - df + 0.5) / (df + 0.5)). The sum is in queries.sql.
* Fused: reciprocal rank fusion (Cormack, Clarke & Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank
  Learning Methods", 2009): the sum of 1 / (RRF_K + rank) over the lists that a chunk is in, ranks from 1. It needs no common scale, which
  cosine and BM25 don't have.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

BM25_K1 = 1.2
BM25_B = 0.75
RRF_K = 60


@dataclass(frozen=True, slots=True)
class DenseMatch:
    """A chunk and its cosine similarity to the question."""

    chunk_id: UUID
    cosine: float


@dataclass(frozen=True, slots=True)
class KeywordMatch:
    """A chunk that holds words of the question: its BM25 score, and its cosine similarity to the question."""

    chunk_id: UUID
    bm25: float
    cosine: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """A chunk with its place in each list (from 1, None where it isn't in it) and its fused score."""

    chunk_id: UUID
    cosine: float
    dense_rank: int | None
    keyword_rank: int | None
    bm25: float | None
    fused: float


def fuse(dense: Sequence[DenseMatch], keyword: Sequence[KeywordMatch]) -> list[Ranked]:
    """Every chunk of either list (each best first), best fused score first; equal scores by cosine, then by id."""
    dense_ranks = {match.chunk_id: rank for rank, match in enumerate(dense, start=1)}
    keyword_ranks = {match.chunk_id: rank for rank, match in enumerate(keyword, start=1)}
    bm25 = {match.chunk_id: match.bm25 for match in keyword}
    cosines = {match.chunk_id: match.cosine for match in keyword} | {match.chunk_id: match.cosine for match in dense}
    ranked = [
        Ranked(
            chunk_id=chunk_id,
            cosine=cosine,
            dense_rank=dense_ranks.get(chunk_id),
            keyword_rank=keyword_ranks.get(chunk_id),
            bm25=bm25.get(chunk_id),
            fused=_reciprocal_rank(dense_ranks.get(chunk_id)) + _reciprocal_rank(keyword_ranks.get(chunk_id)),
        )
        for chunk_id, cosine in cosines.items()
    ]
    return sorted(ranked, key=lambda one: (-one.fused, -one.cosine, one.chunk_id))


def cut(ranked: Iterable[Ranked], top_k: int, min_score: float | None) -> list[Ranked]:
    """The first `top_k` whose cosine similarity is at least `min_score`."""
    return [one for one in ranked if min_score is None or one.cosine >= min_score][:top_k]


def _reciprocal_rank(rank: int | None) -> float:
    return 0.0 if rank is None else 1 / (RRF_K + rank)
