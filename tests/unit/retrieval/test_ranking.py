"""Properties of fusing and cutting."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from services.retrieval.ranking import RRF_K, DenseMatch, KeywordMatch, cut, fuse

ids = st.integers(min_value=0, max_value=30).map(lambda number: UUID(int=number))
cosines = st.floats(min_value=-1, max_value=1)


@st.composite
def lists(draw: st.DrawFn) -> tuple[list[DenseMatch], list[KeywordMatch]]:
    """Two lists as the store gives them: each best first, without repetition, one cosine a chunk."""
    cosine = {chunk_id: draw(cosines) for chunk_id in draw(st.sets(ids))}
    in_dense = draw(st.sets(st.sampled_from(sorted(cosine)))) if cosine else set()
    dense = [DenseMatch(i, cosine[i]) for i in sorted(in_dense, key=lambda i: (-cosine[i], i))]
    bm25 = {i: draw(st.floats(min_value=0, max_value=50)) for i in cosine if i not in in_dense or draw(st.booleans())}
    keyword = [KeywordMatch(i, bm25[i], cosine[i]) for i in sorted(bm25, key=lambda i: (-bm25[i], i))]
    return dense, keyword


@given(lists())
def test_every_chunk_of_either_list_is_ranked_once(both: tuple[list[DenseMatch], list[KeywordMatch]]) -> None:
    dense, keyword = both
    ranked = fuse(dense, keyword)

    assert sorted(one.chunk_id for one in ranked) == sorted(
        {match.chunk_id for match in dense} | {match.chunk_id for match in keyword}
    )


@given(lists())
def test_ranks_are_the_places_in_the_lists(both: tuple[list[DenseMatch], list[KeywordMatch]]) -> None:
    dense, keyword = both
    for one in fuse(dense, keyword):
        if one.dense_rank is not None:
            assert dense[one.dense_rank - 1] == DenseMatch(one.chunk_id, one.cosine)
        if one.keyword_rank is not None:
            assert keyword[one.keyword_rank - 1] == KeywordMatch(one.chunk_id, one.bm25 or 0.0, one.cosine)
        assert one.dense_rank or one.keyword_rank
        assert (one.bm25 is None) == (one.keyword_rank is None)


@given(lists())
def test_fused_scores_are_reciprocal_ranks_best_first(both: tuple[list[DenseMatch], list[KeywordMatch]]) -> None:
    ranked = fuse(*both)

    for one in ranked:
        ranks = [rank for rank in (one.dense_rank, one.keyword_rank) if rank]
        assert one.fused == sum(1 / (RRF_K + rank) for rank in ranks)
    assert [one.fused for one in ranked] == sorted((one.fused for one in ranked), reverse=True)


@given(lists())
def test_one_list_alone_keeps_its_order(both: tuple[list[DenseMatch], list[KeywordMatch]]) -> None:
    dense, keyword = both

    assert [one.chunk_id for one in fuse(dense, [])] == [match.chunk_id for match in dense]
    assert [one.chunk_id for one in fuse([], keyword)] == [match.chunk_id for match in keyword]


@given(lists(), st.data())
def test_being_found_by_both_lists_never_hurts(
    both: tuple[list[DenseMatch], list[KeywordMatch]], data: st.DataObject
) -> None:
    dense, keyword = both
    only_dense = [match for match in dense if match.chunk_id not in {other.chunk_id for other in keyword}]
    if not only_dense:
        return
    lucky = data.draw(st.sampled_from(only_dense))
    place = {one.chunk_id: n for n, one in enumerate(fuse(dense, keyword))}
    better = {
        one.chunk_id: n
        for n, one in enumerate(fuse(dense, [KeywordMatch(lucky.chunk_id, 99.0, lucky.cosine), *keyword]))
    }

    assert better[lucky.chunk_id] <= place[lucky.chunk_id]


@given(lists(), st.integers(min_value=1, max_value=50), st.none() | st.floats(min_value=0, max_value=1))
def test_a_cut_takes_the_first_that_reach_the_threshold(
    both: tuple[list[DenseMatch], list[KeywordMatch]], top_k: int, min_score: float | None
) -> None:
    ranked = fuse(*both)
    good = [one for one in ranked if min_score is None or one.cosine >= min_score]

    assert cut(ranked, top_k, min_score) == good[:top_k]
