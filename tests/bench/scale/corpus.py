"""Synthetic knowledge bases: sizes from 1 to large, clustered vectors, texts with words of all frequencies. The same seed gives the same.

Vectors are like those of multilingual-e5-small: all of them near a common direction, so that two random ones have a cosine of about 0.8.
About it they scatter over the dimensions by a power law (half of the variance in 48 of 384), in topics of unequal size that overlap, and in
documents within them. A chunk's tenth neighbour is at 0.05 to 0.06 (0.04 to 0.17 with real texts), a question's on a base's topic at 0.06
to 0.08, off it at 0.12 to 0.16.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from shared.keyword_vector import keyword_vector_text
from shared.keywords import index_terms

DIMENSION: Final = 384
TOPICS: Final = 200
TOPICS_PER_BASE: Final = 6
WORDS: Final = 20_000
WORDS_PER_CHUNK: Final = 40
TEXTS: Final = 10_000  # each is used again and again, with a word of its own that makes it another one
CHUNKS_PER_DOCUMENT: Final = 50
_PART: Final = 2_000
# How the scatter about the common direction is shared out, and how far it goes.
_OF_TOPIC, _OF_DOCUMENT, _OF_CHUNK = (np.float32(np.sqrt(share)) for share in (0.5, 0.2, 0.3))
_SCATTER: Final = np.float32(0.52)
_POWER: Final = 0.85

Vectors = NDArray[np.float32]


def base_sizes(total: int, bases: int, largest: int) -> list[int]:
    """How many chunks each base has, falling from `largest` to 1 by a power law whose exponent makes them come to about `total`."""
    low, high = 0.1, 3.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(_law(bases, largest, middle)) > total else (low, middle)
    return _law(bases, largest, high)


def _law(bases: int, largest: int, exponent: float) -> list[int]:
    return [max(1, round(largest / rank**exponent)) for rank in range(1, bases + 1)]


@dataclass(frozen=True, slots=True)
class Part:
    """Chunks of one base: content, tsvector literal, number of terms and vector of each, and the number of its document in the base."""

    documents: list[int]
    contents: list[str]
    keywords: list[str]
    lengths: list[int]
    vectors: Vectors


class Corpus:
    """Generates a base from its number, whatever was generated before."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._seed = seed
        variances = np.arange(1, DIMENSION + 1) ** -_POWER
        self._deviations = np.sqrt(variances / variances.sum()).astype(np.float32)
        self._common = rng.standard_normal(DIMENSION, np.float32)
        self._common /= np.linalg.norm(self._common)
        self._topics = self._scatter(rng, TOPICS)
        self._words = _vocabulary(rng)
        frequency = 1 / np.arange(1, WORDS + 1) ** 1.05
        self._cumulated = np.cumsum(frequency / frequency.sum())
        self._texts = [" ".join(self._words[word] for word in row) for row in self._draw(rng, TEXTS)]
        terms = [index_terms(text) for text in self._texts]
        self._keywords = [keyword_vector_text(counted) for counted in terms]
        self._lengths = [sum(counted.values()) + 1 for counted in terms]

    def base_id(self, number: int) -> UUID:
        return UUID(int=(1 << 96) + number + 1)

    def parts(self, number: int, size: int) -> Iterator[Part]:
        """The chunks of a base, some thousand at a time."""
        rng = np.random.default_rng((self._seed, number))
        topics = rng.choice(TOPICS, TOPICS_PER_BASE, replace=False)
        shares = 1 / np.arange(1, TOPICS_PER_BASE + 1)
        for start in range(0, size, _PART):
            count = min(_PART, size - start)
            drawn = rng.integers(TEXTS, size=count).tolist()
            own = [f"b{number}n{position}" for position in range(start, start + count)]
            documents = np.arange(count) // CHUNKS_PER_DOCUMENT
            about = rng.choice(topics, documents[-1] + 1, p=shares / shares.sum())
            yield Part(
                documents=[position // CHUNKS_PER_DOCUMENT for position in range(start, start + count)],
                contents=[f"{self._texts[text]} {word}" for text, word in zip(drawn, own, strict=True)],
                keywords=[f"{self._keywords[text]} '{word}'" for text, word in zip(drawn, own, strict=True)],
                lengths=[self._lengths[text] for text in drawn],
                vectors=self._place(rng, about[documents], self._scatter(rng, len(about))[documents]),
            )

    def questions(self, number: int, count: int, *, off_topic: bool = False) -> list[tuple[str, Vectors]]:
        """Questions about what a base is about, or about what others are about: words and a vector."""
        rng = np.random.default_rng((self._seed, number, 7, int(off_topic)))
        topics = np.random.default_rng((self._seed, number)).choice(TOPICS, TOPICS_PER_BASE, replace=False)
        if off_topic:
            topics = np.setdiff1d(np.arange(TOPICS), topics)
        vectors = self._place(rng, rng.choice(topics, count), self._scatter(rng, count))
        words = self._draw(rng, count)[:, : max(2, WORDS_PER_CHUNK // 8)]
        texts = [" ".join(self._words[word] for word in row) for row in words]
        return list(zip(texts, vectors, strict=True))

    def _place(self, rng: np.random.Generator, topics: NDArray[np.int64], documents: Vectors) -> Vectors:
        """Unit vectors of these topics, in documents that scatter about them like this."""
        scatter = _OF_TOPIC * self._topics[topics] + _OF_DOCUMENT * documents
        scatter += _OF_CHUNK * self._scatter(rng, len(topics))
        around = self._common + _SCATTER * scatter
        vectors: Vectors = (around / np.linalg.norm(around, axis=1, keepdims=True)).astype(np.float32)
        return vectors

    def _scatter(self, rng: np.random.Generator, count: int) -> Vectors:
        """Vectors of mean length 1."""
        scattered: Vectors = rng.standard_normal((count, DIMENSION), np.float32) * self._deviations
        return scattered

    def _draw(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Words by Zipf's law, shape (count, WORDS_PER_CHUNK)."""
        return np.minimum(np.searchsorted(self._cumulated, rng.random((count, WORDS_PER_CHUNK))), WORDS - 1)


def _vocabulary(rng: np.random.Generator) -> list[str]:
    """Words that are all different, of three to five syllables."""
    syllables = np.array([first + second for first in "bdfgklmnprstvz" for second in "aeiou"])
    words: dict[str, None] = {}
    while len(words) < WORDS:
        words["".join(rng.choice(syllables, rng.integers(3, 6)))] = None
    return list(words)
