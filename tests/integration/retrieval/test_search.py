"""What is found, on a real database."""

import math
from collections import defaultdict

import numpy as np
import pytest

from services.retrieval.ranking import BM25_B, BM25_K1, TITLE_SHARE
from services.retrieval.relevance import SIMILARITY_SHARE
from services.retrieval.search import KnowledgeBaseNotFound
from services.retrieval.settings import SearchSettings
from services.retrieval.store import DatabaseUnavailable, VectorsDiffer
from shared.contracts.questions import SearchKnowledge, SearchMode
from shared.keyword_vector import MAX_FREQUENCY
from shared.keywords import index_terms, query_terms
from tests.integration.retrieval.library import Base, Library
from tests.support.embedding_server import vector_of

MODES: tuple[SearchMode, ...] = ("hybrid", "dense")


def ask(base: Base, query: str, **options: object) -> SearchKnowledge:
    return SearchKnowledge.model_validate({"scope": base.scope, "query": query, **options})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("chunks", "top_k"), [(0, 5), (1, 5), (5, 5), (7, 5), (60, 50), (120, 50)])
async def test_a_search_gives_as_many_hits_as_there_are(
    library: Library, mode: SearchMode, chunks: int, top_k: int
) -> None:
    base = await library.add_base()
    await library.add_chunks(base, [f"passage {n}" for n in range(chunks)])

    found = await library.search().answer(ask(base, "something else", top_k=top_k, mode=mode))

    assert len(found.hits) == min(top_k, chunks)
    assert len({hit.chunk_id for hit in found.hits}) == len(found.hits)


@pytest.mark.parametrize("mode", MODES)
async def test_a_search_is_full_right_after_most_chunks_are_deleted(library: Library, mode: SearchMode) -> None:
    base = await library.add_base()
    ids = await library.add_chunks(base, [f"passage {n}" for n in range(200)])
    nearest = [hit.chunk_id for hit in (await library.search().answer(ask(base, "q", top_k=50, mode="dense"))).hits]
    kept = [chunk_id for chunk_id in ids.values() if chunk_id not in nearest][:7]
    await library.pool.execute("DELETE FROM chunk WHERE id <> ALL ($1::uuid[])", kept)

    found = await library.search().answer(ask(base, "q", top_k=50, mode=mode))

    assert {hit.chunk_id for hit in found.hits} == set(kept)


async def test_dense_search_is_exact_and_weighs_title_and_body(library: Library) -> None:
    base = await library.add_base()
    contents = [f"passage {n}" for n in range(80)]
    await library.add_chunks(base, contents)
    question = np.array(vector_of("which passage?", 8))

    found = await library.search().answer(ask(base, "which passage?", top_k=10, mode="dense", explain=True))

    def cosine(content: str) -> float:
        body, title = (float(question @ np.array(vector_of(text, 8))) for text in (content, f"title of {content}"))
        return (1 - TITLE_SHARE) * body + TITLE_SHARE * title

    expected = sorted(contents, key=cosine, reverse=True)[:10]
    assert [hit.content for hit in found.hits] == expected
    scores = [hit.explanation.dense_score for hit in found.hits if hit.explanation]
    assert scores == pytest.approx([cosine(content) for content in expected], abs=1e-6)


async def test_a_hit_says_where_it_comes_from(library: Library) -> None:
    base = await library.add_base()
    ids = await library.add_chunks(base, ["Goods may be returned within 30 days."])

    (hit,) = (await library.search().answer(ask(base, "returns"))).hits

    assert hit.chunk_id == ids["Goods may be returned within 30 days."]
    assert hit.knowledge_base_id == base.id
    assert (hit.filename, hit.version, hit.ordinal, hit.title) == ("handbook.md", 1, 0, "Title")
    assert (hit.heading_path, hit.char_start, hit.char_end) == (("Handbook", "Title"), 10, 20)
    assert hit.explanation is None
    assert (hit.page_first, hit.page_last) == (
        None,
        None,
    )  # of a format without pages, or ingested before they were noted

    await library.pool.execute("UPDATE chunk SET page_first = 7, page_last = 8")
    (hit,) = (await library.search().answer(ask(base, "returns"))).hits
    assert (hit.page_first, hit.page_last) == (7, 8)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("发票", "订单完成后，用户可以在个人中心申请电子发票并下载。"),
        ("t_order_header", "The table t_order_header keeps one row for each order."),
        ("what does T_ORDER_HEADER hold?", "The table t_order_header keeps one row for each order."),
        ("shipping", "Orders are shipped within two days."),
    ],
)
async def test_keyword_search_finds_words_in_both_languages(library: Library, query: str, expected: str) -> None:
    base = await library.add_base()
    others = ["用户表保存会员的基本信息。", "Payment is due on receipt."]
    await library.add_chunks(
        base,
        [
            *others,
            "订单完成后，用户可以在个人中心申请电子发票并下载。",
            "The table t_order_header keeps one row for each order.",
            "Orders are shipped within two days.",
        ],
    )

    found = await library.search().answer(ask(base, query, mode="keyword"))

    assert found.hits[0].content == expected
    assert not {hit.content for hit in found.hits} & set(others)


async def test_keyword_scores_are_bm25(library: Library) -> None:
    base, other = await library.add_base(), await library.add_base()
    contents = [
        " ".join(["refund"] * n + ["filler"] * (n % 3) + [f"word{n}"] * (n % 4)) for n in range(1, MAX_FREQUENCY + 1)
    ]
    contents += ["payment by card", "refund policy", "card payment refund", "nothing of it"]
    await library.add_chunks(base, contents)
    await library.add_chunks(other, ["refund " * 5])

    found = await library.search().answer(ask(base, "refund payment", mode="keyword", top_k=50, explain=True))

    expected = bm25(contents, "refund payment")
    scores = {hit.content: hit.explanation.keyword_score for hit in found.hits if hit.explanation}
    assert scores == pytest.approx(expected)
    assert [hit.content for hit in found.hits[:3]] == sorted(expected, key=lambda c: -expected[c])[:3]


def bm25(contents: list[str], query: str) -> dict[str, float]:
    """BM25 as it stands in the literature, over all chunks that hold a term of the query."""
    documents = {content: index_terms(content) for content in contents}
    mean = sum(sum(terms.values()) for terms in documents.values()) / len(documents)
    scores: defaultdict[str, float] = defaultdict(float)
    for term in query_terms(query):
        holders = [content for content, terms in documents.items() if term in terms]
        idf = math.log(1 + (len(documents) - len(holders) + 0.5) / (len(holders) + 0.5))
        for content in holders:
            frequency, length = documents[content][term], sum(documents[content].values())
            scores[content] += (
                idf * frequency * (BM25_K1 + 1) / (frequency + BM25_K1 * (1 - BM25_B + BM25_B * length / mean))
            )
    return dict(scores)


async def test_a_common_term_is_left_out_when_rarer_ones_fill_the_budget(library: Library) -> None:
    base = await library.add_base()
    await library.add_chunks(base, [f"order number{n}" for n in range(20)] + ["refund", "refund order"])
    search = library.search(SearchSettings(keyword_postings=2))

    found = await search.answer(ask(base, "order refund", mode="keyword", top_k=50))

    assert {hit.content for hit in found.hits} == {"refund", "refund order"}


@pytest.mark.parametrize("query", ["???", "' & ! | :* \\ <->", "\\", "'; DROP TABLE chunk; --", "的"])
async def test_a_question_without_words_still_finds_by_meaning(library: Library, query: str) -> None:
    base = await library.add_base()
    await library.add_chunks(base, ["one", "two"])

    assert len((await library.search().answer(ask(base, query))).hits) == 2
    assert (await library.search().answer(ask(base, query, mode="keyword"))).hits == ()


async def test_a_long_question_is_answered(library: Library) -> None:
    base = await library.add_base()
    await library.add_chunks(base, ["the refund policy", "something else"])

    found = await library.search().answer(ask(base, "refund " + " ".join(f"w{n}" for n in range(2000))))

    assert found.hits[0].content == "the refund policy"


async def test_fused_scores_can_be_recomputed_from_the_explanation(library: Library) -> None:
    base = await library.add_base()
    await library.add_chunks(base, [f"passage {n} about {'refunds' if n % 3 else 'orders'}" for n in range(30)])

    found = await library.search().answer(ask(base, "refunds", top_k=30, explain=True, rerank="off"))

    explanations = [hit.explanation for hit in found.hits]
    assert found.explanation is not None
    scales = {scale.source: scale for scale in found.explanation.scales}
    assert len(explanations) == 30
    fused = []
    for hit, why in zip(found.hits, explanations, strict=True):
        assert why is not None
        expected = 0.0
        for place in why.places:
            scale = scales[place.source]
            expected += scale.weight * (place.score - scale.low) / (scale.high - scale.low)
        assert why.fused_score == pytest.approx(expected, abs=1e-6)
        assert why.dense_score == (why.score_parts["cosine"] if why.dense_rank else None)
        similarity, coverage = why.score_parts["similarity"], why.score_parts["coverage"]
        assert hit.score == pytest.approx(SIMILARITY_SHARE * similarity + (1 - SIMILARITY_SHARE) * coverage, abs=1e-6)
        assert (why.keyword_score is None) == (why.keyword_rank is None)
        fused.append(why.fused_score)
    assert fused == sorted(fused, reverse=True)
    assert sum(why is not None and why.keyword_rank is not None for why in explanations) == 20


async def test_a_hit_that_only_words_found_has_its_cosine_too(library: Library) -> None:
    base = await library.add_base()
    question = [1.0] + [0.0] * 7
    away = [-1.0, 0.1] + [0.0] * 6
    library.embedder.vectors["tiny", "refund"] = question
    contents = [f"near {n}" for n in range(60)]
    near = {content: [1.0, 0.01 * n] + [0.0] * 6 for n, content in enumerate(contents)}
    await library.add_chunks(base, [*contents, "the refund"], {**near, "the refund": away})

    found = await library.search().answer(ask(base, "refund", top_k=2, explain=True))

    hit = next(hit for hit in found.hits if hit.content == "the refund")
    assert hit.explanation is not None
    assert (hit.explanation.dense_rank, hit.explanation.keyword_rank) == (None, 1)
    by_title = float(np.array(question) @ np.array(vector_of("title of the refund", 8)))
    by_body = float(np.array(question) @ np.array(away)) / float(np.linalg.norm(away))
    expected = (1 - TITLE_SHARE) * by_body + TITLE_SHARE * by_title
    assert hit.explanation.score_parts["cosine"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("mode", ["hybrid", "dense", "keyword"])
async def test_hits_below_the_threshold_are_left_out(library: Library, mode: SearchMode) -> None:
    base = await library.add_base()
    await library.add_chunks(base, [f"passage {n}" for n in range(40)])
    everything = (await library.search().answer(ask(base, "passage", mode=mode, top_k=50))).hits
    threshold = max(0.0, sorted(hit.score for hit in everything)[25])

    found = await library.search().answer(ask(base, "passage", mode=mode, top_k=50, min_score=threshold))

    assert {hit.chunk_id for hit in found.hits} == {hit.chunk_id for hit in everything if hit.score >= threshold}
    assert len(found.hits) == 15


async def test_a_base_of_another_tenant_does_not_exist(library: Library) -> None:
    mine, foreign = await library.add_base(), await library.add_base()
    await library.add_chunks(foreign, ["secret"])
    scope = mine.scope.model_copy(update={"knowledge_base_id": foreign.id})

    with pytest.raises(KnowledgeBaseNotFound) as failure:
        await library.search().answer(SearchKnowledge(scope=scope, query="secret"))

    assert failure.value.code == "knowledge_base_not_found"
    assert library.embedder.asked == []


async def test_a_base_whose_model_has_changed_its_dimension_is_a_clear_error(library: Library) -> None:
    base = await library.add_base()
    await library.add_chunks(base, ["one"])
    library.embedder.vectors["tiny", "q"] = vector_of("q", 5)

    with pytest.raises(VectorsDiffer):
        await library.search().answer(ask(base, "q"))

    library.embedder.vectors.clear()
    assert len((await library.search().answer(ask(base, "q"))).hits) == 1


async def test_a_database_that_is_away_is_a_retryable_error(library: Library) -> None:
    base = await library.add_base()
    await library.pool.close()

    with pytest.raises(DatabaseUnavailable) as failure:
        await library.search().answer(ask(base, "q"))

    assert failure.value.retryable
