"""How well a passage fits a question on its own, from 0 to 1: the scale of `Hit.score` and of `min_score`.

Ranks say which passage is best, not whether any fits: fused scores and BM25 depend on what else is there, and cosines lie in another narrow
band for each embedding model. So a score is similarity and coverage together, SIMILARITY_SHARE of it similarity:

* Similarity: the cosine, stretched linearly from the model's `score_range` in the models file to 0..1 and cut off there.
* Coverage: which share of the question's terms the passage and its headings hold, each weighted by its idf among the candidates.

Without vectors the coverage stands alone. What was measured: docs/decisions/0020-ranking.md.
"""

from dataclasses import dataclass
from typing import NamedTuple

SIMILARITY_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class ScoreRange:
    """The cosines that an embedding model gives to what doesn't fit at all and to what fits perfectly."""

    low: float = 0.0
    high: float = 1.0

    def similarity(self, cosine: float) -> float:
        """The cosine on a scale from 0 to 1."""
        return min(1.0, max(0.0, (cosine - self.low) / (self.high - self.low)))


class Relevance(NamedTuple):
    """A score and what it was computed from; no cosine: nobody could embed the question."""

    cosine: float | None
    similarity: float | None
    coverage: float

    @property
    def score(self) -> float:
        if self.similarity is None:
            return self.coverage
        return SIMILARITY_SHARE * self.similarity + (1 - SIMILARITY_SHARE) * self.coverage

    @property
    def parts(self) -> dict[str, float]:
        parts = {"cosine": self.cosine, "similarity": self.similarity, "coverage": self.coverage}
        return {name: value for name, value in parts.items() if value is not None}


def relevance(cosine: float | None, coverage: float, score_range: ScoreRange) -> Relevance:
    """The relevance of a passage with this cosine (of a model with that range) and coverage (0 to 1)."""
    return Relevance(cosine, None if cosine is None else score_range.similarity(cosine), coverage)
