"""How lists of matches become one: by meaning and by words, for each wording of the question.

* By meaning ("dense"): cosine similarity of question and chunk; of a chunk with vectors of both, TITLE_SHARE of it is the title's.
* By words ("keyword"): BM25 (Robertson & Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009) with BM25_K1 and BM25_B
  and the idf that is never negative, ln(1 + (n - df + 0.5) / (df + 0.5)). The sum is in queries.sql.
* Fused: a convex combination of both (Bruch, Gai & Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval", 2023): each score
  is stretched to 0..1, the cosine from the lowest to the highest among the candidates, BM25 from 0 to the highest, then weighted. How much
  better the first is than the others counts, which ranks forget: where one list is at a loss, reciprocal rank fusion drags the
  other one down. Words count less where the best match holds little of the question, as in another language: in proportion, when its
  BM25 is less than GOOD_MATCH of the sum of the question's idf. Measured in docs/decisions/0020-ranking.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias
from uuid import UUID

BM25_K1 = 1.2
BM25_B = 0.75
TITLE_SHARE = 0.05
GOOD_MATCH = 0.7

Source = Literal["dense", "keyword"]
WEIGHTS: Mapping[Source, float] = MappingProxyType({"dense": 0.5, "keyword": 0.5})


class DenseMatch(NamedTuple):
    """A chunk and its cosine similarity to the question."""

    chunk_id: UUID
    cosine: float

    @property
    def score(self) -> float:
        return self.cosine


class KeywordMatch(NamedTuple):
    """A chunk that holds words of the question: its BM25 score, and its cosine similarity to the question when that has a vector."""

    chunk_id: UUID
    bm25: float
    cosine: float | None

    @property
    def score(self) -> float:
        return self.bm25


Match: TypeAlias = DenseMatch | KeywordMatch


@dataclass(frozen=True, slots=True)
class MatchList:
    """What one look at the knowledge bases found, best first. `wording` counts the question's wordings from 0.

    `asked` is the sum of the idf of a keyword search's terms; 0 where it isn't known.
    """

    source: Source
    wording: int
    matches: Sequence[Match]
    asked: float = 0.0


@dataclass(frozen=True, slots=True)
class Scale:
    """How the scores of one source and wording become contributions: weight * (score - low) / (high - low)."""

    source: Source
    wording: int
    low: float
    high: float
    weight: float

    def contribution(self, score: float) -> float:
        """From 0 to the weight; all of it where all scores are equal."""
        return self.weight * ((score - self.low) / (self.high - self.low) if self.high > self.low else 1.0)


class Standing(NamedTuple):
    """A chunk's score by one source for one wording, what it adds to its fused score, and its rank in that list, from 1.

    A chunk that only words found has a cosine all the same, but no rank by it.
    """

    source: Source
    wording: int
    rank: int | None
    score: float
    contribution: float


class Ranked(NamedTuple):
    """A chunk with its standings, its fused score and its best cosine similarity to any wording; None when there are no vectors."""

    chunk_id: UUID
    standings: tuple[Standing, ...]
    fused: float
    cosine: float | None


@dataclass(frozen=True, slots=True)
class Fusion:
    """Every chunk of any list, best fused score first (equal scores by cosine, then by id), and the scales behind the scores."""

    ranked: Sequence[Ranked]
    scales: tuple[Scale, ...]


def fuse(lists: Sequence[MatchList]) -> Fusion:
    """Fuses the lists of all wordings; each wording counts the same, and fused scores lie between 0 and 1."""
    wordings = len({found.wording for found in lists}) or 1
    cosines = _cosines(lists)
    best: dict[UUID, float] = {}
    for by_chunk in cosines.values():
        best |= {chunk_id: max(cosine, best.get(chunk_id, cosine)) for chunk_id, cosine in by_chunk.items()}
    scales: list[Scale] = []
    standings: dict[UUID, list[Standing]] = {}
    for found in lists:
        scores = cosines[found.wording] if found.source == "dense" else {m.chunk_id: m.score for m in found.matches}
        if not scores:
            continue
        low, high = min(scores.values()) if found.source == "dense" else 0.0, max(scores.values())
        weight = WEIGHTS[found.source] * _trust(found, high) / wordings
        scale = Scale(found.source, found.wording, low, high, weight)
        scales.append(scale)
        ranks = {match.chunk_id: rank for rank, match in enumerate(found.matches, start=1)}
        for chunk_id, score in scores.items():
            standing = Standing(found.source, found.wording, ranks.get(chunk_id), score, scale.contribution(score))
            standings.setdefault(chunk_id, []).append(standing)
    ranked = [
        Ranked(chunk_id, tuple(places), sum([place.contribution for place in places]), best.get(chunk_id))
        for chunk_id, places in standings.items()
    ]
    return Fusion(sorted(ranked, key=_best_first), tuple(scales))


def _trust(found: MatchList, best: float) -> float:
    """How much a list counts, 0 to 1."""
    return min(1.0, best / (GOOD_MATCH * found.asked)) if found.asked > 0 else 1.0


def _cosines(lists: Sequence[MatchList]) -> Mapping[int, Mapping[UUID, float]]:
    """The cosines of all candidates, by wording and chunk."""
    cosines: dict[int, dict[UUID, float]] = {found.wording: {} for found in lists}
    for found in lists:
        known = {match.chunk_id: match.cosine for match in found.matches if match.cosine is not None}
        cosines[found.wording] |= known
    return cosines


def _best_first(one: Ranked) -> tuple[float, float, UUID]:
    return -one.fused, -1.0 if one.cosine is None else -one.cosine, one.chunk_id
