"""Which passages of the hits answer a question, and how they are quoted."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deploy.offline_model.passages import Passage, passages
from deploy.offline_model.terms import is_chinese, terms

_MAX_QUOTES = 6
_MAX_CHARS = 1500
_MAX_UNSURE = 2
_NEAR_BEST = 0.6
"""A passage is quoted along when its score is at least this part of the best one's."""
_CONTEXT_WEIGHT = 0.4
_ENOUGH = 0.45
_ENOUGH_IN_CHINESE = 0.25
"""The part of the question's weight that a passage must cover to count as an answer; pairs of characters dilute it in Chinese."""
_NUMBER_BONUS = 1.7
_ASKS_FOR_A_NUMBER = re.compile(
    r"\bhow (long|many|much|often|old|far|big|large)\b|多[久少长大远]|几|\bwhen\b", re.IGNORECASE
)
_DIGIT = re.compile(r"\d")


@dataclass(frozen=True, slots=True)
class Hit:
    """A search hit; `number` is what a citation of it says."""

    number: int
    heading: str
    content: str


@dataclass(frozen=True, slots=True)
class _Candidate:
    passage: Passage
    hit: Hit
    rank: int
    position: int
    context: frozenset[str]


def read_hits(content: str) -> list[Hit] | None:
    """The hits of a tool result's JSON text; None when it isn't one of a search."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    found = _hit_list(value)
    if found is None:
        return None
    return [_hit(hit, position) for position, hit in enumerate(found, start=1) if isinstance(hit, dict)]


def quote(question: str, hits: Sequence[Hit]) -> tuple[str, bool]:
    """The passages that fit the question best with their citation marks, and whether they cover enough of it."""
    candidates = list(_candidates(hits))
    asked = terms(question)
    weights = _weights(asked, candidates)
    wants_number = _ASKS_FOR_A_NUMBER.search(question) is not None

    def score(candidate: _Candidate) -> float:
        bonus = _NUMBER_BONUS if wants_number and _DIGIT.search(candidate.passage.text) else 1.0
        return bonus * _score(asked, weights, candidate)

    # Sorting is stable: equals stay in the order of the hits and of their text.
    matching = [candidate for candidate in candidates if asked & candidate.passage.words]
    fitting = matching or [candidate for candidate in candidates if asked & candidate.context]
    chosen = _chosen(sorted(((score(c), c) for c in fitting), key=lambda pair: -pair[0]))
    enough = _ENOUGH_IN_CHINESE if is_chinese(question) else _ENOUGH
    if any(_covered(asked, weights, candidate) >= enough for candidate in chosen):
        return _rendered(chosen), True
    return _rendered((chosen if matching else _opening(candidates))[:_MAX_UNSURE]), False


def _hit_list(value: object) -> list[Any] | None:
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        return None
    for name in ("hits", "results"):
        if isinstance(value.get(name), list):
            return list(value[name])
    return _hit_list(value["result"]) if isinstance(value.get("result"), dict) else None


def _hit(hit: Mapping[str, Any], position: int) -> Hit:
    number = hit.get("n")
    path = hit.get("heading_path")
    headings = [str(part) for part in path] if isinstance(path, list) else []
    heading = " ".join(dict.fromkeys([*headings, str(hit.get("title") or "")]))
    return Hit(number if isinstance(number, int) else position, heading, str(hit.get("content") or ""))


def _candidates(hits: Sequence[Hit]) -> Iterator[_Candidate]:
    for rank, hit in enumerate(hits):
        context = terms(hit.heading)
        for position, passage in enumerate(passages(hit.content)):
            yield _Candidate(passage, hit, rank, position, context)


def _weights(asked: frozenset[str], candidates: Sequence[_Candidate]) -> dict[str, float]:
    """The rarer a term among the passages, the more it says (inverse document frequency)."""
    counts = Counter(term for candidate in candidates for term in asked & (candidate.passage.words | candidate.context))
    return {term: math.log(1 + len(candidates) / (0.5 + counts[term])) for term in asked}


def _score(asked: frozenset[str], weights: Mapping[str, float], candidate: _Candidate) -> float:
    words = candidate.passage.words
    score = sum(weights[term] for term in asked & words)
    score += _CONTEXT_WEIGHT * sum(weights[term] for term in (asked & candidate.context) - words)
    # Long passages hold many words by being long, later hits fit less.
    return score / (1 + 0.15 * math.log1p(len(words) / 20)) * (1 - 0.02 * min(candidate.rank, 10))


def _covered(asked: frozenset[str], weights: Mapping[str, float], candidate: _Candidate) -> float:
    found = asked & (candidate.passage.words | candidate.context)
    return sum(weights[term] for term in found) / (sum(weights.values()) or 1)


def _chosen(scored: Sequence[tuple[float, _Candidate]]) -> list[_Candidate]:
    best = scored[0][0] if scored else 0.0
    chosen: list[_Candidate] = []
    size = 0
    for score, candidate in scored:
        if score < _NEAR_BEST * best or len(chosen) == _MAX_QUOTES:
            break
        size_with = size + len(candidate.passage.text)
        if chosen and (size_with > _MAX_CHARS or any(_overlap(candidate, other) for other in chosen)):
            continue
        chosen.append(candidate)
        size = size_with
    return chosen


def _overlap(one: _Candidate, other: _Candidate) -> bool:
    """Whether the two say the same: text within text, or a table and a row of it."""
    return one.passage.text in other.passage.text or other.passage.text in one.passage.text


def _opening(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    return [candidate for candidate in candidates if candidate.rank == 0 and not candidate.passage.is_table]


def _rendered(chosen: Sequence[_Candidate]) -> str:
    """Quotes by hit, best hit first, in the text's order; rows of one table stand under one header."""
    order = list(dict.fromkeys(candidate.rank for candidate in chosen))
    quotes: list[str] = []
    for rank in order:
        of_hit = sorted((c for c in chosen if c.rank == rank), key=lambda c: c.position)
        blocks = [c.passage for c in of_hit]
        mark = f"[{of_hit[0].hit.number}]"
        quotes.extend(_with_mark(text, mark) for text in _merged(blocks))
    return "\n\n".join(quotes)


def _merged(blocks: Sequence[Passage]) -> list[str]:
    texts: list[str] = []
    header = ""
    for block in blocks:
        is_row = bool(block.header) and not block.is_table
        if is_row and header == block.header:
            texts[-1] += f"\n{block.text}"
        else:
            texts.append(f"{block.header}\n{block.text}" if is_row else block.text)
        header = block.header if is_row else ""
    return texts


def _with_mark(text: str, mark: str) -> str:
    return f"{text}\n\n{mark}" if "\n" in text else f"{text} {mark}"
