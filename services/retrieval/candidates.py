"""The first candidates of a search with their texts, and how well each fits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

import numpy as np

from services.retrieval.occurrences import Text, Weights, coverage, find_terms, presence, weigh
from services.retrieval.ports import Passage
from services.retrieval.ranking import Ranked, Scale
from services.retrieval.relevance import Relevance, ScoreRange, relevance
from services.retrieval.reranking.judging import Asked, Candidate, Judgement

_UNKNOWN = ScoreRange()


class Assessed(NamedTuple):
    """A candidate with its relevance, and after reranking with its judgement and the rank that it had before."""

    candidate: Candidate
    relevance: Relevance
    judgement: Judgement | None = None
    rank_before: int = 0

    @property
    def unit(self) -> UUID:
        """What would be returned: the parent where there is one, else the chunk."""
        passage = self.candidate.passage
        return passage.parent_id or passage.chunk_id

    def fits(self, min_score: float | None) -> bool:
        return min_score is None or self.relevance.score >= min_score


@dataclass(frozen=True, slots=True)
class Pool:
    """The question as it is asked of the candidates, these in the order of their fused scores, and the scales of these."""

    asked: Asked
    assessed: Sequence[Assessed]
    scales: Sequence[Scale] = ()


def assess(
    wordings: Sequence[tuple[str, Sequence[str]]],
    ranked: Sequence[Ranked],
    passages: Mapping[UUID, Passage],
    ranges: Mapping[UUID, ScoreRange],
    term_weights: Mapping[str, float],
) -> Pool:
    """Weighs those of the ranked chunks whose texts were found.

    `wordings` are texts with their terms, the question itself first; `ranges` the score range of each knowledge base; `term_weights` the
    idf of terms, where it is known. A passage covers what it covers of its best wording.
    """
    found = [(one, passages[one.chunk_id]) for one in ranked if one.chunk_id in passages]
    (query, terms), *others = wordings
    reading = _read(terms, [passage for _, passage in found], term_weights)
    covered = reading.covered
    for _, other_terms in others:
        covered = np.maximum(covered, _read(other_terms, [passage for _, passage in found], term_weights).covered)
    assessed = [
        Assessed(
            Candidate(one, passage, reading.contents[index], float(reading.covered[index])),
            relevance(one.cosine, float(covered[index]), ranges.get(passage.knowledge_base_id, _UNKNOWN)),
            rank_before=index + 1,
        )
        for index, (one, passage) in enumerate(found)
    ]
    return Pool(Asked(query, terms, reading.weights), assessed)


def units(assessed: Sequence[Assessed], min_score: float | None) -> int:
    """How many hits there would be."""
    return len({one.unit for one in assessed if one.fits(min_score)})


@dataclass(frozen=True, slots=True)
class _Reading:
    """Passages as one wording sees them; arrays have an entry for each passage, `weights` one for each term."""

    weights: Weights
    contents: Sequence[Text]
    covered: Weights


def _read(terms: Sequence[str], passages: Sequence[Passage], term_weights: Mapping[str, float]) -> _Reading:
    headings = [find_terms(terms, "\n".join(passage.heading_path) or passage.title) for passage in passages]
    contents = [find_terms(terms, passage.content) for passage in passages]
    held = presence(contents, len(terms)) | presence(headings, len(terms))
    known = [term_weights[term] for term in terms if term in term_weights]
    weights = np.array(known) if len(known) == len(terms) else weigh(held)
    return _Reading(weights, contents, coverage(held, weights))
