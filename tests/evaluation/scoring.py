"""Figures of ranked results: hit@k, MRR@10, and nDCG@10 for binary relevance (Järvelin & Kekäläinen 2002, gain 1 or 0)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

DEPTH = 10


@dataclass(frozen=True, slots=True)
class Judged:
    """One question's results, best first: whether each is right. `relevant` is how many right ones there are to find."""

    right: Sequence[bool]
    relevant: int


def figures(results: Sequence[Judged]) -> dict[str, float]:
    """The means over the questions, by the names that reports use."""
    return {
        **{f"hit@{k}": fmean(any(one.right[:k]) for one in results) for k in (1, 5, 10)},
        "MRR@10": fmean(_reciprocal_rank(one) for one in results),
        "nDCG@10": fmean(_ndcg(one) for one in results),
    }


def _reciprocal_rank(one: Judged) -> float:
    return next((1 / rank for rank, right in enumerate(one.right[:DEPTH], start=1) if right), 0.0)


def _ndcg(one: Judged) -> float:
    gain = sum(1 / math.log2(rank + 1) for rank, right in enumerate(one.right[:DEPTH], start=1) if right)
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(DEPTH, one.relevant) + 1))
    return gain / ideal if ideal else 0.0
