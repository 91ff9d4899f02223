"""Quotes: the sentences of a passage that match a question best, word for word."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from services.retrieval.occurrences import Text
from services.retrieval.ports import Passage
from shared.contracts.questions import Quote

MAX_QUOTE_CHARS = 200
_STEP = 50  # between the beginnings of the windows in which a long sentence is quoted
_SENTENCE = re.compile(r"[^。！？!?；;\n.]*(?:[。！？!?；;\n]+|\.(?=\s)\s*|\.|$)")


def best_quote(passage: Passage, found: Text, terms: Sequence[str], weights: Sequence[float]) -> Quote | None:
    """The best quote out of a passage in which terms were found; its beginning where there are none. None for a passage without text."""
    content = passage.content
    spans = list(_pieces(content, passage.header_chars))
    if not spans:
        return None
    # Folding moves places by a few characters in rare texts, which may make a neighbour the best.
    held = [
        (starts, len(term), weight) for starts, term, weight in zip(found.starts, terms, weights, strict=True) if starts
    ]
    scores = [
        sum([weight for starts, length, weight in held if _has_one(starts, start, end - length)])
        for start, end in spans
    ]
    first = scores.index(max(scores))
    last = first
    # Neighbours complete the thought, those behind it first, as far as there is room.
    while last + 1 < len(spans) and spans[last + 1][1] - spans[first][0] <= MAX_QUOTE_CHARS:
        last += 1
    while first > 0 and spans[last][1] - spans[first - 1][0] <= MAX_QUOTE_CHARS:
        first -= 1
    start, end = spans[first][0], spans[last][1]
    offset = passage.char_start - passage.header_chars
    return Quote(text=content[start:end], char_start=offset + start, char_end=offset + end)


def _has_one(starts: Sequence[int], first: int, last: int) -> bool:
    """Whether one of these ascending places is between two others, both included."""
    index = bisect_left(starts, first)
    return index < len(starts) and starts[index] <= last


def _pieces(content: str, start_at: int) -> Iterator[tuple[int, int]]:
    """Sentences without the white space around them, each at most MAX_QUOTE_CHARS long: a longer one as overlapping windows."""
    for match in _SENTENCE.finditer(content, start_at):
        text = match[0].strip()
        if not text:
            continue
        start = match.start() + match[0].index(text)
        end = start + len(text)
        while end - start > MAX_QUOTE_CHARS:
            yield start, start + MAX_QUOTE_CHARS
            start += _STEP
        yield start, end
