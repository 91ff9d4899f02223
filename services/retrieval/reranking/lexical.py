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
        words = _Words(asked.terms, asked.weights.tolist())
        return [words.judge(one, one.ranked.fused / best) for one in candidates]


class _Words:
    """A question's words, with what is the same for all candidates."""

    def __init__(self, terms: Sequence[str], weights: Sequence[float]) -> None:
        self._lengths = [len(term) for term in terms]
        self._weights = weights
        self._total = sum(weights) or 1.0
        self._pairs = [min(pair) for pair in pairwise(weights)]  # of neighbours: the lesser weight
        self._pairs_total = sum(self._pairs) or 1.0

    def judge(self, candidate: Candidate, fused: float) -> Judgement:
        starts = candidate.content.starts
        features = {
            "fused": fused,
            "coverage": candidate.coverage,
            "proximity": self._proximity(starts) / self._total,
            "order": self._order(starts) / self._pairs_total,
        }
        return Judgement(sum([WEIGHTS[name] * value for name, value in features.items()]), features)

    def _proximity(self, starts: Sequence[Sequence[int]]) -> float:
        """The sum of the weights of the terms, each times its accumulated nearness to others, which saturates towards 1."""
        lengths, weights = self._lengths, self._weights
        nearness: dict[int, float] = {}
        occurrences = sorted([(start, term) for term, places in enumerate(starts) for start in places])
        for (start, term), (following, other) in pairwise(occurrences):
            if term != other:
                distance = max(1, following - start - lengths[term] + 1)
                nearness[term] = nearness.get(term, 0.0) + weights[other] / distance
                nearness[other] = nearness.get(other, 0.0) + weights[term] / distance
        return sum([weights[term] * near / (near + _SATURATION) for term, near in nearness.items()])

    def _order(self, starts: Sequence[Sequence[int]]) -> float:
        """The sum, by the lesser weight, of the question's pairs of neighbours that the text has as neighbours in the same order."""
        return sum(
            [
                lesser
                for term, lesser in enumerate(self._pairs)
                if starts[term] and starts[term + 1] and _follow(starts[term], starts[term + 1], self._lengths[term])
            ]
        )


def _follow(starts: Sequence[int], next_starts: Sequence[int], length: int) -> bool:
    for start in starts:
        index = bisect_left(next_starts, start + 1)
        if index < len(next_starts) and next_starts[index] - start <= length + _GAP:
            return True
    return False
