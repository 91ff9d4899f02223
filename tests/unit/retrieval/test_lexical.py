"""What the lexical reranker prefers, other things being equal."""

from uuid import UUID

import pytest

from services.retrieval.candidates import assess
from services.retrieval.ranking import DenseMatch, MatchList, fuse
from services.retrieval.reranking.lexical import WEIGHTS, LexicalReranker
from services.retrieval.search import Search
from services.retrieval.settings import SearchSettings
from shared.keywords import query_terms
from tests.unit.retrieval.memory import ConstantEmbedder, MemoryStore, passage, question


async def features_of(query: str, *contents: str) -> list[dict[str, float]]:
    """The features of candidates in this order."""
    passages = {UUID(int=number): passage(number, content) for number, content in enumerate(contents, start=1)}
    ranked = fuse([MatchList("dense", 0, [DenseMatch(chunk_id, 0.9) for chunk_id in passages])]).ranked
    pool = assess([(query, query_terms(query))], ranked, passages, {}, {})
    judged = await LexicalReranker().judge(pool.asked, [one.candidate for one in pool.assessed])
    for one in judged:
        assert one.score == pytest.approx(sum(WEIGHTS[name] * value for name, value in one.features.items()))
    return [dict(one.features) for one in judged]


@pytest.mark.parametrize(
    ("feature", "query", "better", "worse"),
    [
        ("coverage", "refund kettle", "a refund for the kettle", "a refund"),
        ("proximity", "refund kettle", "refund the kettle", "refund " + "x " * 60 + "kettle"),
        ("order", "order table", "the order table", "the table order"),
        ("order", "数据库表结构", "这是数据库表结构", "结构的表与数据库"),
    ],
)
async def test_a_feature_tells_the_better_candidate(feature: str, query: str, better: str, worse: str) -> None:
    good, bad = await features_of(query, better, worse)

    assert 0 <= bad[feature] < good[feature] <= 1


async def test_all_features_lie_between_0_and_1() -> None:
    for features in await features_of("refund refund kettle", "refund kettle " * 50, "", "kettle"):
        assert all(0 <= value <= 1 for value in features.values()), features


async def test_a_question_without_terms_keeps_the_order() -> None:
    features = await features_of("?!", "one", "two")

    assert [sorted(each.values())[:-1] for each in features] == [[0.0] * 3] * 2


async def test_a_phrase_outranks_scattered_words_before_it() -> None:
    """Both are as near by meaning; the second one holds the question as it was asked."""
    contents = {
        1: "The table is about many things. " + "Filler words. " * 20 + "An order is one of them.",
        2: "See the order table.",
    }
    store = MemoryStore(chunks=2, contents=contents, cosine=0.9)
    search = Search(store, ConstantEmbedder(), SearchSettings())
    plain = await search.answer(question(query="order table", rerank="off"))
    better = await search.answer(question(query="order table"))

    assert [hit.chunk_id.int for hit in plain.hits] == [1, 2]
    assert [hit.chunk_id.int for hit in better.hits] == [2, 1]
