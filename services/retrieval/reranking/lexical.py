"""Reranking by the question's words: how much of it a candidate holds, how near to each other, and in which order.

Proximity as in Büttcher, Clarke & Lushman, "Term Proximity Scoring for Ad-Hoc Retrieval on Very Large Text Collections" (SIGIR 2006): each
pair of different terms that stand next to each other among the occurrences adds to both, the other's weight divided by their distance.
Order as in Metzler & Croft, "A Markov Random Field Model for Term Dependencies" (SIGIR 2005): neighbours in the question that are
neighbours in the text. The weights were measured: docs/decisions/0020-ranking.md.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

from services.retrieval.occurrences import Text
from services.retrieval.reranking.judging import Asked, Candidate, Judgement

WEIGHTS: Mapping[str, float] = MappingProxyType({"fused": 1.0, "coverage": 0.1, "proximity": 0.1, "order": 0.1})
_GAP = 2  # characters that may stand between neighbours: a space, a mark
_SATURATION = 1.2  # as BM25's k1


class LexicalReranker:
    """Costs nothing but some 30 microseconds a candidate."""

    name = "lexical"

    async def judge(self, asked: Asked, candidates: Sequence[Candidate]) -> list[Judgement]:
        """A weighted sum of features, each from 0 to 1."""
        best = max((one.ranked.fused for one in candidates), default=0.0) or 1.0
        weights = asked.weights.tolist()
        return [_judgement(asked.terms, weights, one, one.ranked.fused / best) for one in candidates]


def _judgement(terms: Sequence[str], weights: Sequence[float], candidate: Candidate, fused: float) -> Judgement:
    content = candidate.content
    occurrences = sorted((start, term) for term, starts in enumerate(content.starts) for start in starts)
    total = sum(weights) or 1.0
    features = {
        "fused": fused,
        "coverage": candidate.coverage,
        "proximity": _proximity(terms, weights, occurrences) / total,
        "order": _order(terms, weights, content),
    }
    return Judgement(sum(WEIGHTS[name] * value for name, value in features.items()), features)


def _proximity(terms: Sequence[str], weights: Sequence[float], occurrences: Sequence[tuple[int, int]]) -> float:
    """The sum of the weights of the terms, each times its accumulated nearness to others, which saturates towards 1."""
    nearness = [0.0] * len(terms)
    for (start, term), (following, other) in pairwise(occurrences):
        if term != other:
            distance = max(1, following - start - len(terms[term]) + 1)
            nearness[term] += weights[other] / distance
            nearness[other] += weights[term] / distance
    return sum(weight * near / (near + _SATURATION) for weight, near in zip(weights, nearness, strict=True))


def _order(terms: Sequence[str], weights: Sequence[float], content: Text) -> float:
    """The share, by the lesser weight, of the question's pairs of neighbours that the text has as neighbours in the same order."""
    total = kept = 0.0
    for term, (weight, next_weight) in enumerate(pairwise(weights)):
        lesser = min(weight, next_weight)
        total += lesser
        if _follow(content.starts[term], content.starts[term + 1], len(terms[term])):
            kept += lesser
    return kept / total if total else 0.0


def _follow(starts: Sequence[int], next_starts: Sequence[int], length: int) -> bool:
    if not starts or not next_starts:
        return False
    for start in starts:
        index = bisect_left(next_starts, start + 1)
        if index < len(next_starts) and next_starts[index] - start <= length + _GAP:
            return True
    return False
