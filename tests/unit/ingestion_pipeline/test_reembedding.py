"""The core of embedding a knowledge base again, on in-memory ports: rounds, the cut-over, and each way out."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from services.ingestion import reembedding
from services.ingestion.pipeline import TextEmbedder
from services.ingestion.reembedding import ClaimedGeneration, IndexState, MissingVector, Reembedding, Shelf
from shared.errors import CodedError, ErrorInfo, LeaseLost
from tests.unit.ingestion_pipeline.doubles import CountingEmbedder

JOB = ClaimedGeneration(
    tenant_id=UUID(int=1),
    knowledge_base_id=UUID(int=2),
    generation=2,
    id=UUID(int=3),
    model="next",
    state="building",
    epoch=1,
    attempts=1,
    request_id=None,
    serving=1,
)


def missing(number: int, text: str) -> MissingVector:
    return MissingVector(UUID(int=100 + number), "body", text)


@dataclass
class Shelves:
    """Documents of one chunk each, by number; `late` come when the first cut-over is tried. `index`: its next states, the last for ever."""

    texts: dict[int, str]
    late: dict[int, str] = field(default_factory=dict)
    lost_after: int | None = None
    index: list[IndexState] = field(default_factory=lambda: ["unneeded"])
    vectors: dict[int, str] = field(default_factory=dict)
    progress: list[tuple[int, int]] = field(default_factory=list)
    fresh: list[bool] = field(default_factory=list)
    confirmed: int = 0
    endings: list[tuple[str, str | None]] = field(default_factory=list)

    async def count_chunks(self, job: ClaimedGeneration) -> int:
        return len(self.texts)

    async def next_shelf(self, job: ClaimedGeneration, after: UUID) -> Shelf:
        numbers = sorted(number for number in self.texts if UUID(int=number) > after)[:2]
        lacking = [missing(number, self.texts[number]) for number in numbers if number not in self.vectors]
        return Shelf([UUID(int=number) for number in numbers], len(numbers), lacking)

    async def confirm(self, job: ClaimedGeneration) -> None:
        self.confirmed += 1
        if self.lost_after is not None and self.confirmed > self.lost_after:
            raise LeaseLost("lost")

    async def advance(self, job: ClaimedGeneration, done: int, total: int, *, fresh: bool) -> None:
        self.progress.append((done, total))
        self.fresh.append(fresh)

    async def index_state(self, job: ClaimedGeneration) -> IndexState:
        return self.index.pop(0) if len(self.index) > 1 else self.index[0]

    async def add_vectors(self, job: ClaimedGeneration, shelf: Shelf, vectors: TextEmbedder) -> int:
        assert await vectors.missing([vector.text for vector in shelf.missing]) == []
        self.vectors |= {vector.chunk_id.int - 100: vector.text for vector in shelf.missing}
        return len(shelf.missing)

    async def cut_over(self, job: ClaimedGeneration) -> bool:
        self.texts |= self.late
        self.late = {}
        if self.texts != self.vectors:
            return False
        self.endings.append(("serves", None))
        return True

    async def delete_some(self, job: ClaimedGeneration) -> bool:
        if self.vectors:
            self.vectors.popitem()
            return True
        self.endings.append(("gone", None))
        return False

    async def fail(self, job: ClaimedGeneration, error: ErrorInfo) -> None:
        self.endings.append(("failed", error.code))

    async def delay(self, job: ClaimedGeneration, error: ErrorInfo) -> None:
        self.endings.append(("delayed", error.code))

    async def hand_back(self, job: ClaimedGeneration) -> None:
        self.endings.append(("handed back", None))


async def run(
    store: Shelves,
    embedder: CountingEmbedder,
    job: ClaimedGeneration = JOB,
    every: float = 0.0,
    index_seconds: float = 60.0,
) -> None:
    await Reembedding(store, embedder, every, index_seconds).run(job)


def texts(numbers: Sequence[int]) -> dict[int, str]:
    return {number: f"text {number}" for number in numbers}


async def test_what_is_missing_is_embedded_and_what_comes_meanwhile_in_another_round() -> None:
    store, embedder = Shelves(texts([1, 2, 3, 4, 5]), late=texts([6, 7])), CountingEmbedder()
    store.vectors = texts([2])
    await run(store, embedder)
    assert store.vectors == store.texts == texts([1, 2, 3, 4, 5, 6, 7])
    assert sorted(text for batch in embedder.batches for text in batch) == sorted(texts([1, 3, 4, 5, 6, 7]).values())
    assert store.endings == [("serves", None)]


async def test_progress_counts_chunks_and_never_passes_their_number() -> None:
    store = Shelves(texts([1, 2, 3]))
    await run(store, CountingEmbedder(batch_size=1))
    assert store.progress == [(0, 3), (1, 3), (2, 3), (2, 3), (3, 3)]
    assert store.fresh == [False, True, True, True, True]


async def test_an_attempt_counts_as_progress_when_it_has_embedded_something() -> None:
    """Else a fault behind the last text would be met for ever."""
    store, embedder = Shelves(texts([1, 2])), CountingEmbedder()
    await embedder.embed(["text 1", "text 2"])
    await run(store, embedder)
    assert store.fresh == [False]
    store = Shelves(texts([1, 2, 3]))
    await run(store, CountingEmbedder(batch_size=1), every=1_000)
    assert store.fresh == [False, True]  # the first batch at once, however soon a worker dies


async def test_a_change_that_is_called_off_embeds_one_batch_more_at_most() -> None:
    store, embedder = Shelves(texts(range(1, 9)), lost_after=2), CountingEmbedder(batch_size=1)
    await run(store, embedder, every=1_000)
    assert sum(len(batch) for batch in embedder.batches) <= 3
    assert store.endings == []


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (CodedError("no", code="embedding_invalid"), ("failed", "embedding_invalid")),
        (CodedError("away", code="embedding_unavailable", retryable=True), ("delayed", "embedding_unavailable")),
        (ZeroDivisionError(), ("delayed", "internal_error")),
    ],
)
async def test_an_error_ends_it_as_its_kind_demands(error: Exception, ending: tuple[str, str]) -> None:
    store = Shelves(texts([1, 2, 3]))
    await run(store, CountingEmbedder(errors=[None, error]))
    assert store.endings == [ending]


async def test_it_serves_when_its_index_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reembedding, "_INDEX_PAUSE", 0.0)
    store = Shelves(texts([1]), index=["building", "building", "ready"])
    await run(store, CountingEmbedder())
    assert (store.index, store.endings) == (["ready"], [("serves", None)])
    assert store.confirmed >= 2  # a change that was called off is noticed meanwhile


@pytest.mark.parametrize(("index", "seconds"), [("failed", 60.0), ("building", 0.0), ("building", 0.05)])
async def test_it_serves_without_an_index_that_fails_or_takes_too_long(
    monkeypatch: pytest.MonkeyPatch, index: IndexState, seconds: float
) -> None:
    monkeypatch.setattr(reembedding, "_INDEX_PAUSE", 0.0)
    store = Shelves(texts([1]), index=[index])
    with capture_logs() as logs:
        await run(store, CountingEmbedder(), index_seconds=seconds)
    assert store.endings == [("serves", None)]
    assert [log["state"] for log in logs if log["event"] == "generation.not_indexed"] == [index]


async def test_it_waits_while_a_document_is_being_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reembedding, "_ROUND_PAUSE", 0.0)

    class Busy(Shelves):
        """A document that can't be completed at first."""

        rounds = 0

        async def add_vectors(self, job: ClaimedGeneration, shelf: Shelf, vectors: TextEmbedder) -> int:
            self.rounds += 1
            return await super().add_vectors(job, shelf, vectors) if self.rounds > 3 else 0

    store = Busy(texts([1]))
    await run(store, CountingEmbedder())
    assert (store.rounds, store.endings) == (4, [("serves", None)])


async def test_a_generation_that_was_given_up_is_deleted_bit_by_bit() -> None:
    store = Shelves({}, vectors=texts([1, 2, 3]))
    await run(store, CountingEmbedder(), replace(JOB, state="discarding"))
    assert (store.vectors, store.endings) == ({}, [("gone", None)])
