"""What the bench's two models make of its texts: vectors like those of a real model, each computed from the number that a text ends with.

They lie as those of the bench at scale do (tests/bench/scale/corpus.py): near a common direction, in topics, in documents within them. Both
models know the same topics and nothing else of each other, so that a chunk's neighbours differ between them.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tests.bench.scale.corpus import CHUNKS_PER_DOCUMENT

DIMENSIONS: Final = {"former": 768, "next": 1024}
QUESTIONS: Final = 40
_ABOUT: Final = 6  # topics of the base
_TOPICS: Final = 8  # of the questions: every fifth is about what the base doesn't hold
_SCATTER: Final = 0.52
_POWER: Final = 0.85
_ENDS = re.compile(r"(b0n|q)(\d+)$")

Vectors = NDArray[np.float32]


def passage_number(text: str) -> int:
    """Which chunk this text is of."""
    kind, number = _read(text)
    assert kind == "b0n", text
    return number


def question_text(words: str, number: int) -> str:
    """A question that the models know by its number."""
    return f"{words} q{number}"


class Space:
    """The vectors of one model, unit length, shape (dimension,)."""

    def __init__(self, model: str) -> None:
        self.dimension = DIMENSIONS[model]
        rng = np.random.default_rng(self.dimension)
        variances = np.arange(1, self.dimension + 1) ** -_POWER
        self._deviations = np.sqrt(variances / variances.sum()).astype(np.float32)
        self._common = rng.standard_normal(self.dimension, np.float32)
        self._common /= np.linalg.norm(self._common)
        self._topics = self._scatter(rng, _TOPICS)
        self._document = lru_cache(maxsize=64)(self.document)

    def vector(self, text: str) -> Vectors:
        """Of a chunk or a question."""
        kind, number = _read(text)
        if kind == "q":
            return self.question(number)
        document, position = divmod(number, CHUNKS_PER_DOCUMENT)
        vector: Vectors = self._document(document)[position]
        return vector

    def document(self, number: int) -> Vectors:
        """All chunks of a full document, shape (CHUNKS_PER_DOCUMENT, dimension)."""
        topic = int(np.random.default_rng((1, number)).integers(_ABOUT))
        rng = np.random.default_rng((self.dimension, 1, number))
        return self._place(rng, topic, np.repeat(self._scatter(rng, 1), CHUNKS_PER_DOCUMENT, axis=0))

    def question(self, number: int) -> Vectors:
        """One in five is off the base's topics."""
        topic = _ABOUT + number % (_TOPICS - _ABOUT) if number % 5 == 4 else number % _ABOUT
        rng = np.random.default_rng((self.dimension, 2, number))
        vector: Vectors = self._place(rng, topic, self._scatter(rng, 1))[0]
        return vector

    def _place(self, rng: np.random.Generator, topic: int, document: Vectors) -> Vectors:
        own = self._scatter(rng, len(document))
        scatter = np.sqrt(0.5) * self._topics[topic] + np.sqrt(0.2) * document + np.sqrt(0.3) * own
        around = self._common + _SCATTER * scatter
        vectors: Vectors = (around / np.linalg.norm(around, axis=1, keepdims=True)).astype(np.float32)
        return vectors

    def _scatter(self, rng: np.random.Generator, count: int) -> Vectors:
        scattered: Vectors = rng.standard_normal((count, self.dimension), np.float32) * self._deviations
        return scattered


class Truth:
    """What a model says about every question and chunk: `cosines`, shape (QUESTIONS, chunks), and the nearest of them."""

    def __init__(self, model: str, chunks: int, top_k: int) -> None:
        space = Space(model)
        questions = np.stack([space.question(number) for number in range(QUESTIONS)])
        self.cosines: Vectors = np.concatenate(list(_cosines(space, questions, chunks)), axis=1)[:, :chunks]
        order = np.argsort(-self.cosines, axis=1)[:, :top_k]
        self.nearest = [set(row.tolist()) for row in order]


def _cosines(space: Space, questions: Vectors, chunks: int) -> Iterator[Vectors]:
    for number in range(-(-chunks // CHUNKS_PER_DOCUMENT)):
        yield questions @ space.document(number).T


def _read(text: str) -> tuple[str, int]:
    match = _ENDS.search(text)
    assert match is not None, text
    return match[1], int(match[2])
