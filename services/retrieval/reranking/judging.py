"""What rerankers are given and what they give back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Protocol

from services.retrieval.occurrences import Text, Weights
from services.retrieval.ports import Passage
from services.retrieval.ranking import Ranked


@dataclass(frozen=True, slots=True)
class Asked:
    """The question as rerankers see it: its words, its terms in order, and how telling each of them is."""

    query: str
    terms: Sequence[str]
    weights: Weights


class Candidate(NamedTuple):
    """A chunk that may become a hit: where the question's terms stand in its content, and which share of them it and its headings hold."""

    ranked: Ranked
    passage: Passage
    content: Text
    coverage: float


class Judgement(NamedTuple):
    """What a reranker thinks of one candidate: the higher the better; `features` is what the score was computed from."""

    score: float
    features: Mapping[str, float] = MappingProxyType({})


class Reranker(Protocol):
    """Judges candidates."""

    @property
    def name(self) -> str: ...

    async def judge(self, asked: Asked, candidates: Sequence[Candidate]) -> Sequence[Judgement]:
        """One judgement for each candidate, in their order. Raises CodedError."""
        ...
