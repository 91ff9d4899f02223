"""The core of ingestion on in-memory ports: order, progress, resuming, and each way out."""

import asyncio
from dataclasses import replace

import pytest

from services.ingestion.parsing.limits import ParseCrashed
from services.ingestion.pipeline import Ingestion, Progress
from services.ingestion.text import EmptyDocument
from shared.errors import CodedError
from tests.unit.ingestion_pipeline.doubles import (
    CountingEmbedder,
    FixedParser,
    Models,
    RecordingStore,
    SlowStore,
    claimed,
    piece,
)

PIECES = [piece(n, f"T{n}", f"body {n}") for n in range(4)]


def pipeline(
    store: RecordingStore,
    embedder: CountingEmbedder,
    parser: FixedParser | None = None,
    progress_every: float = 0.0,
) -> Ingestion:
    return Ingestion(store, parser or FixedParser(PIECES), embedder, progress_every)


async def test_a_document_goes_through_all_states() -> None:
    store, embedder = RecordingStore(), CountingEmbedder(batch_size=3)
    await pipeline(store, embedder).run(claimed("both"))
    assert store.progress == [
        Progress("splitting", 0, 4),
        Progress("embedding", 0, 4),
        Progress("embedding", 1, 4, fresh=True),  # T0, body 0, T1: the second chunk still lacks its body
        Progress("embedding", 3, 4, fresh=True),
        Progress("embedding", 4, 4, fresh=True),
    ]
    assert [chunk.piece for chunk in store.chunks] == PIECES
    assert store.endings == [("ready", None)]


async def test_splitting_is_announced_at_once_where_it_takes_time_and_else_with_the_next_state() -> None:
    short, long = RecordingStore(), RecordingStore()
    await pipeline(short, CountingEmbedder(), progress_every=3600).run(claimed("body"))
    parser = FixedParser([piece(n, "", f"body {n}") for n in range(17)])
    await pipeline(long, CountingEmbedder(batch_size=64), parser).run(claimed("body"))
    assert short.commits[:2] == [["splitting", "embedding"], ["embedding"]]
    assert long.commits == [["splitting"], ["embedding"], ["embedding"]]


async def test_only_what_is_not_cached_is_asked_for_and_progress_starts_there() -> None:
    store, embedder = RecordingStore(), CountingEmbedder(cached={"T0", "T1", "T3"})
    await pipeline(store, embedder).run(claimed("title"))
    assert embedder.batches == [["T2"]]
    assert [(step.done, step.total) for step in store.progress[1:]] == [(2, 4), (4, 4)]


async def test_a_text_that_stands_twice_in_a_document_is_asked_for_once() -> None:
    twins = [piece(0, "Same", "a"), piece(1, "Same", "b"), piece(2, "Same", "a")]
    store, embedder = RecordingStore(), CountingEmbedder()
    await pipeline(store, embedder, FixedParser(twins)).run(claimed("both"))
    assert embedder.batches == [["Same", "a"], ["b"]]
    assert len(store.chunks) == 3


async def test_progress_is_announced_after_the_first_batch_then_seldom_and_always_at_the_end() -> None:
    store = RecordingStore()
    await pipeline(store, CountingEmbedder(batch_size=1), progress_every=3600).run(claimed("both"))
    assert [step.done for step in store.progress if step.state == "embedding"] == [0, 0, 4]


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (CodedError("no", code="embedding_invalid"), ("failed", "embedding_invalid")),
        (CodedError("away", code="embedding_unavailable", retryable=True), ("delayed", "embedding_unavailable")),
        (ZeroDivisionError(), ("delayed", "internal_error")),
    ],
)
async def test_an_error_while_embedding_ends_as_its_kind_demands(error: Exception, ending: tuple[str, str]) -> None:
    store, embedder = RecordingStore(), CountingEmbedder(errors=[None, error])
    await pipeline(store, embedder).run(claimed())
    assert store.endings == [ending]
    assert store.chunks == []


async def test_the_next_attempt_asks_only_for_what_the_last_one_lacked() -> None:
    embedder = CountingEmbedder(errors=[None, CodedError("away", retryable=True)])
    await pipeline(RecordingStore(), embedder).run(claimed("body"))
    store = RecordingStore()
    await pipeline(store, embedder).run(claimed("body"))
    assert embedder.batches == [["body 0", "body 1"], ["body 2", "body 3"]]
    assert store.endings == [("ready", None)]


async def test_a_document_that_cannot_be_read_fails_with_its_code() -> None:
    store = RecordingStore()
    parser = FixedParser([], EmptyDocument("the document holds no text"))
    await pipeline(store, CountingEmbedder(), parser).run(claimed())
    assert store.endings == [("failed", "empty_document")]


async def test_a_document_whose_parser_died_of_something_else_is_tried_again() -> None:
    store = RecordingStore()
    parser = FixedParser([], ParseCrashed("the parser process died", retryable=True))
    await pipeline(store, CountingEmbedder(), parser).run(claimed())
    assert store.endings == [("delayed", "parse_crashed")]


@pytest.mark.parametrize("states", [0, 2, 3])
async def test_a_lost_lease_stops_the_work_without_a_trace(states: int) -> None:
    store, embedder = RecordingStore(lost_after=states), CountingEmbedder()
    await pipeline(store, embedder).run(claimed())
    assert (store.endings, store.chunks, len(store.progress)) == ([], [], states)


async def test_a_cancelled_document_is_handed_back() -> None:
    store = RecordingStore()
    embedder = CountingEmbedder(errors=[None, asyncio.CancelledError()])
    with pytest.raises(asyncio.CancelledError):
        await pipeline(store, embedder).run(claimed())
    assert store.endings == [("handed back", None)]


async def test_a_document_cancelled_twice_is_handed_back_once() -> None:
    store, embedder = SlowStore(), CountingEmbedder(errors=[asyncio.CancelledError()])
    run = asyncio.ensure_future(pipeline(store, embedder).run(claimed()))
    await store.handing_back.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    store.may_finish.set()
    await store.handed_back.wait()
    assert store.endings == [("handed back", None)]


async def test_an_absent_database_ends_the_work_quietly() -> None:
    store = RecordingStore(away=CodedError("away", code="database_unavailable", retryable=True))
    await pipeline(store, CountingEmbedder()).run(claimed())
    assert store.endings == []


async def test_a_document_that_is_stopped_is_embedded_for_one_batch_more_at_most() -> None:
    store, embedder = RecordingStore(lost_after=3), CountingEmbedder(batch_size=1)
    await pipeline(store, embedder, progress_every=1_000).run(claimed("title"))
    assert (embedder.batches, store.endings) == ([["T0"], ["T1"]], [])


async def test_a_document_whose_worker_has_died_is_embedded_in_small_batches() -> None:
    store, embedder = RecordingStore(), CountingEmbedder(batch_size=100)
    many = FixedParser([piece(n, f"T{n}", "body") for n in range(20)])
    await pipeline(store, embedder, many).run(replace(claimed("title"), deaths=1))
    assert [len(batch) for batch in embedder.batches] == [8, 8, 4]


async def test_a_document_is_embedded_for_every_generation_of_its_base() -> None:
    store, embedder = RecordingStore(), CountingEmbedder()
    document = replace(claimed("title"), generation=3, other_generations={2: "former", 4: "next"})
    await pipeline(store, embedder).run(document)
    assert store.content is not None
    assert list(store.content.vectors) == [3, 2, 4]


async def test_a_model_that_does_not_serve_and_does_not_answer_is_left_out_and_spared_for_a_while() -> None:
    store, embedder = RecordingStore(), CountingEmbedder()
    away = CodedError("away", code="embedding_unavailable", retryable=True)
    other = CountingEmbedder(errors=[away, away])
    models = Models({"tiny": embedder, "former": other})
    ingestion = Ingestion(store, FixedParser(PIECES), models, 0.0)
    document = replace(claimed("title"), other_generations={2: "former"})
    for _ in range(2):
        await ingestion.run(document)
        assert store.content is not None
        assert list(store.content.vectors) == [1]
    assert store.endings == [("ready", None)] * 2
    assert len(other.errors) == 1  # it was asked once
