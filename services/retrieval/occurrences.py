"""Where the words of a question stand in a text.

Texts are searched for terms, not cut into terms: cutting 50 candidates would take longer than the whole search. Terms of Han characters
and kana match anywhere, others at the beginning of a word with the same stem.
"""

import re
import string
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import opencc
from numpy.typing import NDArray

from shared.keywords import index_terms

Weights: TypeAlias = NDArray[np.float64]

# Full-width letters and digits, half-width kana. Not full-width punctuation: it is in all Chinese text and in no term.
_WIDE = re.compile("[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff66-\uff9f]")
# Character by character, which is quick; where it differs from the words that are indexed, a term is missed and no more.
_IN_HAN = [chr(code) for code in range(0x4E00, 0xA000)]
_PAIRS = zip(_IN_HAN, opencc.OpenCC("t2s").convert("\n".join(_IN_HAN)).split("\n"), strict=True)
_SIMPLIFIED = {ord(char): simplified for char, simplified in _PAIRS if char != simplified}
_TRADITIONAL = re.compile(f"[{''.join(map(chr, _SIMPLIFIED))}]")
_LATIN = frozenset(string.ascii_lowercase + string.digits)
_WORD = re.compile(f"[{string.ascii_lowercase}{string.digits}]+")
_MOST = 32  # occurrences of one term that count; more say nothing new


class Text(NamedTuple):
    """A folded text and where in it each term of the question begins, ascending; one entry for each term, in the question's order."""

    folded: str
    starts: tuple[tuple[int, ...], ...]


def fold(text: str) -> str:
    """The text without differences of case, of the width of letters and digits, and of traditional and simplified characters."""
    if text.isascii():
        return text.lower()
    if _WIDE.search(text):
        text = unicodedata.normalize("NFKC", text)
    if _TRADITIONAL.search(text):
        text = text.translate(_SIMPLIFIED)
    return text.lower()


def find_terms(terms: Sequence[str], text: str) -> Text:
    """Where a question's terms stand in a text."""
    if not text:
        return Text("", ((),) * len(terms))
    folded = fold(text)
    return Text(folded, tuple([_starts(term, folded) if term in folded else () for term in terms]))


def presence(texts: Sequence[Text], terms: int) -> NDArray[np.bool_]:
    """Which text holds which of so many terms, shape (len(texts), terms)."""
    held = [[len(starts) > 0 for starts in text.starts] for text in texts]
    return np.array(held, np.bool_).reshape(len(texts), terms)


def weigh(held: NDArray[np.bool_]) -> Weights:
    """How telling each term is among texts, shape (terms,), from which text holds which: the idf of BM25, over these texts alone."""
    holders = held.sum(axis=0)
    weights: Weights = np.log(1 + (len(held) - holders + 0.5) / (holders + 0.5))
    return weights


def coverage(held: NDArray[np.bool_], weights: Weights) -> Weights:
    """Which share of the question each text holds, 0 to 1, each term by its weight; shape (len(held),)."""
    total = float(weights.sum())
    return held @ weights / total if total else np.zeros(len(held))


def _starts(term: str, text: str) -> tuple[int, ...]:
    start = text.find(term)
    starts: list[int] = []
    is_word = term.isascii()
    while start >= 0 and len(starts) < _MOST:
        end = start + len(term)
        if not is_word or _is_word_of(term, text, start, end):
            starts.append(start)
        start = text.find(term, end)
    return tuple(starts)


def _is_word_of(term: str, text: str, start: int, end: int) -> bool:
    """Whether the word of Latin letters and digits that begins at `start` has this term, which ends at `end`."""
    if start and text[start - 1] in _LATIN:
        return False
    if text[end : end + 1] not in _LATIN:  # or at the end of the text
        return True
    word = _WORD.match(text, start)
    return word is not None and term in _terms_of(word[0])


@lru_cache(maxsize=65_536)
def _terms_of(word: str) -> frozenset[str]:
    return frozenset(index_terms(word, fold_variants=False))
