"""The order of a search's stages and its ways out, on a store in memory."""

from collections.abc import Sequence
from uuid import UUID

import pytest
import structlog

from services.retrieval.relevance import ScoreRange
from services.retrieval.rerank_stage import RerankStage
from services.retrieval.reranking.judging import Asked, Candidate, Judgement
from services.retrieval.resting import RestingModels
from services.retrieval.search import ChunksChanging, Search
from services.retrieval.settings import SearchSettings
from shared.contracts.questions import RunScope, SearchFilter, SearchKnowledge, SearchMode
from shared.errors import CodedError
from tests.unit.retrieval.memory import BASE, ConstantEmbedder, MemoryStore, question

FAILURE = CodedError("away", code="embedding_unavailable", retryable=True)


def search(
    store: MemoryStore,
    embedder: ConstantEmbedder | None = None,
    reranking: RerankStage | None = None,
    ranges: dict[str, ScoreRange] | None = None,
) -> Search:
    return Search(store, embedder or ConstantEmbedder(), SearchSettings(rerank="off"), reranking, ranges)


@pytest.mark.parametrize(
    ("mode", "top_k", "expected"),
    [
        ("dense", 5, [("nearest", 50), ("load", 20)]),
        ("keyword", 5, [("matching", 50), ("load", 0)]),
        ("hybrid", 5, [("nearest", 50), ("matching", 50), ("load", 20)]),
        ("hybrid", 20, [("nearest", 80), ("matching", 80), ("load", 20)]),
    ],
)
async def test_each_mode_looks_only_where_it_has_to(
    mode: SearchMode, top_k: int, expected: list[tuple[str, int]]
) -> None:
    store = MemoryStore()
    await search(store).answer(question(mode=mode, top_k=top_k))

    assert store.calls == expected


async def test_a_question_without_terms_skips_the_keyword_search() -> None:
    store = MemoryStore()
    found = await search(store).answer(question(query="?!"))

    assert [name for name, _ in store.calls] == ["nearest", "load"]
    assert len(found.hits) == 5


async def test_a_filter_goes_with_every_look() -> None:
    store = MemoryStore()
    wanted = SearchFilter(tags=("hr",))
    await search(store).answer(question(filter=wanted, queries=["money back"]))

    assert [target.filter for target in store.targets] == [wanted] * 4


@pytest.mark.parametrize("swaps", [1, 2])
async def test_a_search_starts_again_when_chunks_were_replaced_under_it(swaps: int) -> None:
    store = MemoryStore(swaps=swaps)
    found = await search(store).answer(question())

    assert [hit.content for hit in found.hits] == ["1", "2", "3", "4", "5"]
    assert len([name for name, _ in store.calls if name == "load"]) == swaps + 1


async def test_a_search_gives_up_when_chunks_never_stop_changing() -> None:
    with pytest.raises(ChunksChanging) as failure:
        await search(MemoryStore(swaps=99)).answer(question())

    assert failure.value.retryable


async def test_asking_for_nothing_that_was_granted_reads_nothing() -> None:
    store = MemoryStore()
    scope = RunScope(run_id=UUID(int=7), knowledge_base_ids=(UUID(int=8),))

    assert (await search(store).answer(SearchKnowledge(scope=scope, query="refund"))).hits == ()
    assert store.calls == []


@pytest.mark.parametrize("embedder", [ConstantEmbedder(failure=FAILURE), ConstantEmbedder(hangs=True)])
@pytest.mark.parametrize("mode", ["hybrid", "keyword"])
async def test_without_vectors_words_must_do_and_the_answer_says_so(
    embedder: ConstantEmbedder, mode: SearchMode
) -> None:
    store = MemoryStore(contents={3: "a refund within 30 days", 4: "a kettle"})
    with structlog.testing.capture_logs() as logs:
        found = await search(store, embedder).answer(question(mode=mode), seconds=0.2)

    assert [hit.content for hit in found.hits] == ["a refund within 30 days"]
    assert found.degraded == ("embeddings_unavailable",)
    assert found.hits[0].score == 1.0  # all of the question's words
    assert [name for name, _ in store.calls] == ["matching", "load"]
    assert [entry["without"] for entry in logs if entry["event"] == "search.degraded"] == ["embeddings"]


async def test_few_searches_wait_for_a_model_that_is_away() -> None:
    store = MemoryStore(contents={3: "a refund within 30 days"})
    embedder = ConstantEmbedder(failure=FAILURE)
    searching = Search(store, embedder, SearchSettings(rerank="off", embedding_rest=3600))
    for _ in range(2):
        assert (await searching.answer(question())).degraded == ("embeddings_unavailable",)

    embedder.failure = None
    asked = len(embedder.asked)
    assert (await searching.answer(question())).degraded == (
        "embeddings_unavailable",
    )  # at once, and without asking it
    assert len(embedder.asked) == asked

    # Who can't do without vectors asks all the same, and what it finds out is good for everybody.
    assert (await searching.answer(question(mode="dense"))).degraded == ()
    assert (await searching.answer(question())).degraded == ()


@pytest.mark.parametrize("failure", [CodedError("too long", code="embedding_refused"), None])
async def test_a_text_that_a_model_refuses_and_a_hurried_asker_do_not_put_it_to_rest(
    failure: CodedError | None,
) -> None:
    embedder = ConstantEmbedder(failure=failure, hangs=failure is None)
    searching = Search(
        MemoryStore(contents={3: "a refund"}), embedder, SearchSettings(rerank="off", embedding_rest=3600)
    )
    for _ in range(3):
        assert (await searching.answer(question(), seconds=0.05)).degraded == ("embeddings_unavailable",)

    embedder.failure, embedder.hangs = None, False
    assert (await searching.answer(question())).degraded == ()


def test_models_rest_apart_and_are_tried_by_one_search_at_a_time() -> None:
    now = 0.0
    resting = RestingModels(seconds=30, clock=lambda: now)
    resting.failed("tiny")
    assert not resting.any_of(["tiny"])  # once may be chance
    resting.failed("tiny")

    assert resting.any_of(["other", "tiny"])
    assert not resting.any_of(["other"])
    now = 31.0
    assert not resting.any_of(["tiny"])  # this one tries ...
    assert resting.any_of(["tiny"])  # ... and others go on without
    resting.worked("tiny")
    assert not resting.any_of(["tiny"])


@pytest.mark.parametrize("embedder", [ConstantEmbedder(failure=FAILURE), ConstantEmbedder(hangs=True)])
async def test_a_dense_search_without_vectors_fails(embedder: ConstantEmbedder) -> None:
    with pytest.raises(CodedError) as failure:
        await search(MemoryStore(), embedder).answer(question(mode="dense"), seconds=0.2)

    assert failure.value.code == "embedding_unavailable"


async def test_further_wordings_are_embedded_in_one_batch_and_fused() -> None:
    embedder = ConstantEmbedder()
    store = MemoryStore(chunks=3, contents={2: "a refund", 3: "your money back"})
    asked = question(queries=["money back", "refund"], explain=True)
    found = await search(store, embedder).answer(asked)

    assert embedder.asked == [["refund", "money back"]]
    why = {hit.chunk_id.int: hit.explanation for hit in found.hits}
    places = {
        number: {(place.source, place.wording): place.rank for place in each.places}
        for number, each in why.items()
        if each
    }
    assert places == {
        1: {("dense", 0): 1, ("dense", 1): 1},
        2: {("dense", 0): 2, ("dense", 1): 2, ("keyword", 0): 1},
        3: {("dense", 0): 3, ("dense", 1): 3, ("keyword", 1): 1},
    }
    assert found.explanation is not None
    scales = {(scale.source, scale.wording): scale for scale in found.explanation.scales}
    for each in why.values():
        assert each is not None
        assert each.fused_score == pytest.approx(sum(place.contribution for place in each.places), abs=1e-6)
        for place in each.places:
            scale = scales[place.source, place.wording]
            share = (place.score - scale.low) / (scale.high - scale.low)
            assert place.contribution == pytest.approx(scale.weight * share, abs=1e-6)


async def test_a_hit_says_on_which_page_it_stands() -> None:
    (hit,) = (await search(MemoryStore(chunks=1)).answer(question())).hits
    assert (hit.page_first, hit.page_last) == (4, 4)


async def test_a_parent_is_returned_once_at_its_best_childs_rank() -> None:
    store = MemoryStore(chunks=20, family=4, contents={2: "Returns. A refund takes 30 days. Bring the receipt."})
    found = await search(store).answer(question(top_k=3, explain=True))

    assert [hit.content for hit in found.hits] == ["family 10000", "family 10001", "family 10002"]
    first = found.hits[0]
    assert (first.chunk_id.int, first.parent_id, first.title) == (2, UUID(int=10_000), "Family")
    assert (first.char_start, first.char_end) == (900, 2000)
    assert (first.page_first, first.page_last) == (3, 5)
    assert first.quote is not None
    assert (first.quote.text[:30], first.quote.char_start) == ("Returns. A refund takes 30 day", 1000)
    assert found.explanation is not None
    reasons = [left.reason for left in found.explanation.left_out]
    assert reasons.count("same_parent") == 9
    assert reasons.count("beyond_top_k") == 8


async def test_a_search_looks_further_when_all_it_found_has_few_parents() -> None:
    store = MemoryStore(chunks=400, family=50)
    found = await search(store).answer(question(mode="dense", top_k=5))

    assert len({hit.parent_id for hit in found.hits}) == 5
    assert [limit for name, limit in store.calls if name == "nearest"] == [50, 200, 800]


async def test_what_is_below_the_threshold_is_left_out_and_listed() -> None:
    store = MemoryStore(chunks=10)
    asked = question(mode="dense", query="?!", min_score=0.14, top_k=10, explain=True)
    found = await search(store, ranges={BASE.embedding_model: ScoreRange(0.1, 0.6)}).answer(asked)

    # cosines 1, 1/2, 1/3, 1/4, 1/5 ...; similarity (cosine - 0.1) / 0.5, half of the score
    assert [hit.score for hit in found.hits] == pytest.approx([0.5, 0.4, 1 / 3 - 0.1, 0.15])
    assert found.explanation is not None
    left_out = found.explanation.left_out
    assert {left.reason for left in left_out} == {"below_min_score"}
    assert [left.chunk_id.int for left in left_out] == [5, 6, 7, 8, 9, 10]
    assert all(left.score < 0.14 for left in left_out)


async def test_nothing_that_fits_is_an_empty_answer() -> None:
    found = await search(MemoryStore()).answer(question(min_score=1.0))

    assert found.hits == ()
    assert found.degraded == ()


class Backwards:
    """Prefers what came last, or fails, and sees whether a connection is kept meanwhile."""

    name = "backwards"

    def __init__(self, store: MemoryStore, failure: CodedError | None = None) -> None:
        self._store = store
        self._failure = failure
        self.candidates: list[int] = []
        self.open_readers: list[int] = []

    async def judge(self, asked: Asked, candidates: Sequence[Candidate]) -> list[Judgement]:
        self.candidates.append(len(candidates))
        self.open_readers.append(self._store.open_readers)
        if self._failure:
            raise self._failure
        return [Judgement(float(place)) for place in range(len(candidates))]


async def test_a_reranker_reorders_the_first_candidates_and_is_explained() -> None:
    store = MemoryStore(chunks=20)
    backwards = Backwards(store)
    settings = SearchSettings(rerank="off", rerank_candidates=8)
    asked = question(rerank="model", top_k=10, explain=True, query="?!")
    found = await Search(store, ConstantEmbedder(), settings, RerankStage(settings, backwards)).answer(asked)

    assert [hit.content for hit in found.hits] == ["8", "7", "6", "5", "4", "3", "2", "1", "9", "10"]
    assert (backwards.candidates, backwards.open_readers) == ([8], [0])
    why = found.hits[0].explanation
    assert why is not None
    assert why.rerank is not None
    assert (why.rerank.by, why.rerank.rank_before, why.rerank.score) == ("backwards", 8, 7.0)
    assert found.explanation is not None
    assert found.explanation.rerank == "backwards"


async def test_a_reranker_that_fails_leaves_the_order_and_the_answer_says_so() -> None:
    store = MemoryStore()
    backwards = Backwards(store, CodedError("away", code="rerank_unavailable", retryable=True))
    stage = RerankStage(SearchSettings(), backwards)
    found = await search(store, reranking=stage).answer(question(rerank="model"))

    assert [hit.content for hit in found.hits] == ["1", "2", "3", "4", "5"]
    assert found.degraded == ("rerank_unavailable",)


async def test_a_reranking_model_that_there_is_not_is_done_without() -> None:
    found = await search(MemoryStore()).answer(question(rerank="model"))

    assert len(found.hits) == 5
    assert found.degraded == ("rerank_unavailable",)


@pytest.mark.parametrize(("mode", "expected"), [("hybrid", "lexical"), ("dense", "off")])
async def test_the_default_reranks_hybrid_searches_alone(mode: SearchMode, expected: str) -> None:
    store = MemoryStore()
    found = await Search(store, ConstantEmbedder(), SearchSettings()).answer(question(mode=mode, explain=True))

    assert found.explanation is not None
    assert found.explanation.rerank == expected
