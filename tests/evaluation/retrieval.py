"""Retrieval through the product: every set uploaded for each way of embedding, every question asked in each mode."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.evaluation.plain_bm25 import PlainBM25
from tests.evaluation.product import Json, Product
from tests.evaluation.scoring import DEPTH, Judged, figures
from tests.evaluation.sets import Question, QuestionSet, Source, holds
from tests.support.reports import Row

AskedT = TypeVar("AskedT")
AnswerT = TypeVar("AnswerT")

EMBEDS = ("title", "body", "both")
MODES: dict[str, Json] = {
    "keyword": {"mode": "keyword", "rerank": "off"},
    "dense": {"mode": "dense", "rerank": "off"},
    "hybrid": {"mode": "hybrid", "rerank": "off"},
    "hybrid+rerank": {"mode": "hybrid", "rerank": "lexical"},
}
DEFAULT_EMBED = "both"
MIN_SCORE = 0.35  # what docs/retrieval-quality.md recommends for the bundled embedding model
_ASKED_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Index:
    """A set as the product holds it: its knowledge base, and its chunks as the API lists them."""

    questions: QuestionSet
    base_id: str
    chunks: Sequence[Json]

    def judge(self, question: Question, hits: Sequence[Json]) -> Judged:
        """Which of the hits are right; several out of one passage count once."""
        if question.quotes:
            relevant = sum(self._is_evidence(question, chunk) for chunk in self.chunks)
            return Judged([self._is_evidence(question, hit) for hit in hits[:DEPTH]], relevant)
        found = dict.fromkeys(self._passage(hit) for hit in hits)
        return Judged([passage in question.gold for passage in found][:DEPTH], len(question.gold))

    def _is_evidence(self, question: Question, hit: Json) -> bool:
        return any(holds(hit["content"], quote) for quote in question.quotes)

    def _passage(self, hit: Json) -> str:
        return self._source(hit["filename"]).passage_at(hit["char_start"])

    def _source(self, filename: str) -> Source:
        return next(source for source in self.questions.sources if source.filename == filename)


async def evaluate_set(product: Product, questions: QuestionSet, embeds: Sequence[str]) -> AsyncIterator[Row]:
    """The set's rows, as they are measured. The baseline and keyword search don't depend on what is embedded: they are measured once."""
    for number, embed in enumerate(embeds):
        started = time.monotonic()
        base_id = await product.upload(f"{questions.name} {embed}", questions.sources, {"embed": embed})
        index = Index(questions, base_id, await product.chunks(base_id))
        seconds = round(time.monotonic() - started, 1)
        yield _row(questions.name, "upload", embed, "seconds", seconds, unit="s", chunks=len(index.chunks))
        if number == 0:
            for row in await _alike(product, index, embeds):
                yield row
        for mode, options in MODES.items():
            if mode == "keyword":
                continue
            started = time.monotonic()
            results = await _ask_all(product, index, options)
            seconds = round(time.monotonic() - started, 1)
            for row in _rows(index, mode, embed, results):
                yield {**row, "seconds": seconds}
        if questions.unanswerable and embed == DEFAULT_EMBED:
            for row in await _unanswerable(product, index):
                yield row
        await product.delete(base_id)


async def _alike(product: Product, index: Index, embeds: Sequence[str]) -> list[Row]:
    """The rows of the baseline and of keyword search, measured once and the same for each way of embedding."""
    started = time.monotonic()
    found = {"bm25s": _baseline(index), "keyword": await _ask_all(product, index, MODES["keyword"])}
    seconds = round(time.monotonic() - started, 1)
    rows = [row for mode, results in found.items() for embed in embeds for row in _rows(index, mode, embed, results)]
    return [{**row, "seconds": seconds, "measured": "once for all ways of embedding"} for row in rows]


def _baseline(index: Index) -> list[Judged]:
    texts = ["\n".join((*chunk["heading_path"], chunk["content"])) for chunk in index.chunks]
    bm25 = PlainBM25(texts)
    found = [[index.chunks[n] for n in bm25.best(asked.text, DEPTH)] for asked in index.questions.questions]
    return [index.judge(asked, hits) for asked, hits in zip(index.questions.questions, found, strict=True)]


async def _ask_all(product: Product, index: Index, options: Json) -> list[Judged]:
    async def ask(question: Question) -> Judged:
        return index.judge(question, await product.search(index.base_id, question.text, **options))

    return await _gather(ask, index.questions.questions)


async def _unanswerable(product: Product, index: Index) -> list[Row]:
    """What MIN_SCORE keeps out, and for how many questions it keeps a right hit among the first five."""

    async def answered(text: str) -> bool:
        return bool(await product.search(index.base_id, text, top_k=5, min_score=MIN_SCORE))

    async def kept(question: Question) -> tuple[bool, bool]:
        hits = await product.search(index.base_id, question.text, top_k=5)
        passing = await product.search(index.base_id, question.text, top_k=5, min_score=MIN_SCORE)
        return any(index.judge(question, hits).right), any(index.judge(question, passing).right)

    name = index.questions.name
    out = await _gather(answered, index.questions.unanswerable)
    pairs = await _gather(kept, index.questions.questions)
    right = sum(before for before, _ in pairs)
    return [
        {"name": f"unanswerable/{name}/kept_out", "value": 1 - sum(out) / len(out), "unit": "share"},
        {"name": f"unanswerable/{name}/kept", "value": sum(after for _, after in pairs) / right, "unit": "share"},
    ]


async def _gather(ask: Callable[[AskedT], Awaitable[AnswerT]], questions: Sequence[AskedT]) -> list[AnswerT]:
    turns = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def one(question: AskedT) -> AnswerT:
        async with turns:
            return await ask(question)

    return list(await asyncio.gather(*map(one, questions)))


def _rows(index: Index, mode: str, embed: str, results: Sequence[Judged]) -> list[Row]:
    name = index.questions.name
    return [_row(name, mode, embed, metric, round(value, 4)) for metric, value in figures(results).items()]


def _row(name: str, mode: str, embed: str, metric: str, value: float, unit: str = "share", **extra: Any) -> Row:
    return {"name": f"retrieval/{name}/{mode}/{embed}/{metric}", "value": value, "unit": unit, **extra}
