"""Quotes: the sentences of a passage that match a question best, word for word."""

import re
from collections.abc import Iterator, Sequence

from services.retrieval.occurrences import Weights, coverage, find_terms, presence
from shared.contracts.questions import Quote

MAX_QUOTE_CHARS = 200
_STEP = 50  # between the beginnings of the windows in which a long sentence is quoted
_SENTENCE = re.compile(r"[^。！？!?；;\n.]*(?:[。！？!?；;\n]+|\.(?=\s)\s*|\.|$)")


def best_quote(content: str, offset: int, terms: Sequence[str], weights: Weights) -> Quote | None:
    """The best quote out of `content`, which stands at `offset` of its document; its beginning where no term matches."""
    spans = list(_pieces(content))
    if not spans:
        return None
    texts = [find_terms(terms, content[start:end]) for start, end in spans]
    first = int(coverage(presence(texts, len(terms)), weights).argmax())
    last = first
    # Neighbours complete the thought, those behind it first, as far as there is room.
    while last + 1 < len(spans) and spans[last + 1][1] - spans[first][0] <= MAX_QUOTE_CHARS:
        last += 1
    while first > 0 and spans[last][1] - spans[first - 1][0] <= MAX_QUOTE_CHARS:
        first -= 1
    start, end = spans[first][0], spans[last][1]
    return Quote(text=content[start:end], char_start=offset + start, char_end=offset + end)


def _pieces(content: str) -> Iterator[tuple[int, int]]:
    """Sentences without the white space around them, each at most MAX_QUOTE_CHARS long: a longer one as overlapping windows."""
    for match in _SENTENCE.finditer(content):
        text = match[0].strip()
        if not text:
            continue
        start = match.start() + match[0].index(text)
        end = start + len(text)
        while end - start > MAX_QUOTE_CHARS:
            yield start, start + MAX_QUOTE_CHARS
            start += _STEP
        yield start, end
