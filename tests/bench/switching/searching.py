"""Clients that search all the time, and what each search was worth."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import httpx
import numpy as np

from tests.bench.switching.space import QUESTIONS, Truth, passage_number
from tests.support.waiting import eventually

TOP_K: Final = 10
CLIENTS: Final = 4
_EVERY: Final = 0.25  # seconds from one search of a client to its next: people pause
_SAME: Final = 1e-3  # two cosines of one pair of vectors differ by less


@dataclass(frozen=True, slots=True)
class Searched:
    """One search: when it began and ended, which generation served it and how, and what was found.

    `recall` is the share of that generation's exact TOP_K, of searches by vectors alone. `mixed`: a hit has not the cosine that the
    generation's model gives it.
    """

    began: float
    ended: float
    failure: str | None
    generation: int = 0
    scan: str | None = None
    hits: int = 0
    mixed: bool = False
    recall: float | None = None

    @property
    def milliseconds(self) -> float:
        return (self.ended - self.began) * 1000


@dataclass
class Clients:
    """`truths` are those of the generations. Raises nothing: what goes wrong is in `searches`."""

    client: httpx.AsyncClient
    path: str
    questions: Sequence[str]
    truths: Mapping[int, Truth]
    searches: list[Searched] = field(default_factory=list)
    finished: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, number: int) -> None:
        """One client, until all is finished: two searches by vectors alone for each by vectors and words."""
        for turn in count(number * 11):
            began = time.monotonic()
            mode = "hybrid" if turn % 3 == 2 else "dense"
            self.searches.append(await self._search(turn % QUESTIONS, mode))
            if await self._finishes_within(began + _EVERY - time.monotonic()):
                return

    async def _finishes_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                return await self.finished.wait()
        except TimeoutError:
            return False

    async def more(self, wanted: int, generation: int) -> None:
        """Returns after so many further searches that a generation served."""
        before = len(self.searches)

        async def searched() -> bool:
            return sum(one.generation == generation for one in self.searches[before:]) >= wanted

        await eventually(searched, within=300)

    async def _search(self, question: int, mode: str) -> Searched:
        body = {"query": self.questions[question], "top_k": TOP_K, "mode": mode, "explain": True}
        began = time.monotonic()
        try:
            answer = await self.client.post(f"{self.path}/search", json=body)
        except httpx.HTTPError as error:
            return Searched(began, time.monotonic(), type(error).__name__)
        ended = time.monotonic()
        if answer.status_code != 200 or answer.json()["degraded"]:
            return Searched(began, ended, answer.text[:300])
        return self._judged(began, ended, question, answer.json(), by_vectors=mode == "dense")

    def _judged(self, began: float, ended: float, question: int, found: Any, *, by_vectors: bool) -> Searched:
        (base,) = found["explanation"]["bases"]
        truth = self.truths[base["embedding_generation"]]
        numbers = [passage_number(hit["content"]) for hit in found["hits"]]
        cosines = [hit["explanation"]["dense_score"] for hit in found["hits"]]
        wrong = [abs(cosine - truth.cosines[question, n]) > _SAME for n, cosine in zip(numbers, cosines, strict=True)]
        return Searched(
            began=began,
            ended=ended,
            failure=None,
            generation=base["embedding_generation"],
            scan=base["scan"],
            hits=len(numbers),
            mixed=any(wrong),
            recall=len(truth.nearest[question].intersection(numbers)) / TOP_K if by_vectors else None,
        )


@asynccontextmanager
async def searching(clients: Clients) -> AsyncIterator[Clients]:
    """Searches until the end of the block."""
    tasks = [asyncio.create_task(clients.run(number)) for number in range(CLIENTS)]
    try:
        yield clients
    finally:
        clients.finished.set()
        await asyncio.gather(*tasks)


def phase(searches: Sequence[Searched], wanted: Callable[[Searched], bool]) -> dict[str, Any]:
    """Some of the searches in figures: times in milliseconds."""
    some = [one for one in searches if one.failure is None and wanted(one)]
    recalls = [one.recall for one in some if one.recall is not None]
    taken = [one.milliseconds for one in some] or [0.0]
    return {
        "searches": len(some),
        "recall": round(float(np.mean(recalls)), 4) if recalls else None,
        "lowest": min(recalls, default=None),
        "p50": round(float(np.percentile(taken, 50)), 1),
        "p95": round(float(np.percentile(taken, 95)), 1),
        "max": round(max(taken), 1),
        "exact": sum(one.scan == "exact" for one in some),
    }
