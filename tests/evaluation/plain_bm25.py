"""The baseline: bm25s over the product's own chunks, words as everybody cuts them (jieba for Chinese, English stems without stop words)."""

import re
import unicodedata
from collections.abc import Sequence

import bm25s
import rjieba
import Stemmer

_HAN = re.compile(r"[\u3400-\u9fff]+")
_TOKEN = re.compile(r"[\u3400-\u9fff]+|\w+")
_STEMMER = Stemmer.Stemmer("english")
_STOP_WORDS = frozenset(bm25s.tokenization.STOPWORDS_EN)


class PlainBM25:
    """An index of texts with the library's defaults (Lucene's formula, k1 1.5, b 0.75)."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._index = bm25s.BM25()
        self._index.index([_words(text) for text in texts], show_progress=False)
        self._size = len(texts)

    def best(self, question: str, count: int) -> list[int]:
        """The positions of the texts that fit best, best first; none that shares no word with the question."""
        words = _words(question)
        if not any(word in self._index.vocab_dict for word in words):
            return []
        documents, scores = self._index.retrieve([words], k=min(count, self._size), show_progress=False)
        return [int(d) for d, score in zip(documents[0], scores[0], strict=True) if score > 0]


def _words(text: str) -> list[str]:
    words: list[str] = []
    for token in _TOKEN.findall(unicodedata.normalize("NFKC", text).lower()):
        words += rjieba.cut(token) if _HAN.match(token) else [_STEMMER.stemWord(token)]
    return [word for word in words if word not in _STOP_WORDS]
