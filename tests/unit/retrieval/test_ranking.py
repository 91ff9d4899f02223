"""Properties of fusing."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.retrieval.ranking import DenseMatch, KeywordMatch, MatchList, fuse

ids = st.integers(min_value=0, max_value=30).map(lambda number: UUID(int=number))
cosines = st.integers(-1000, 1000).map(lambda number: number / 1000)


@st.composite
def pairs(draw: st.DrawFn, wording: int = 0) -> list[MatchList]:
    """The two lists of a wording as the store gives them: each best first, without repetition, one cosine a chunk."""
    cosine = {chunk_id: draw(cosines) for chunk_id in draw(st.sets(ids))}
    in_dense = draw(st.sets(st.sampled_from(sorted(cosine)))) if cosine else set()
    dense = [DenseMatch(i, cosine[i]) for i in sorted(in_dense, key=lambda i: (-cosine[i], i))]
    bm25 = {i: draw(st.integers(0, 5000)) / 100 for i in cosine if i not in in_dense or draw(st.booleans())}
    keyword = [KeywordMatch(i, bm25[i], cosine[i]) for i in sorted(bm25, key=lambda i: (-bm25[i], i))]
    return [MatchList("dense", wording, dense), MatchList("keyword", wording, keyword)]


@st.composite
def lists(draw: st.DrawFn) -> list[MatchList]:
    """The lists of one to three wordings."""
    return [found for wording in range(draw(st.integers(1, 3))) for found in draw(pairs(wording))]


@given(lists())
def test_every_chunk_of_any_list_is_ranked_once(found: list[MatchList]) -> None:
    assert sorted(one.chunk_id for one in fuse(found).ranked) == sorted(
        {match.chunk_id for each in found for match in each.matches}
    )


@given(lists())
def test_standings_are_the_places_in_the_lists(found: list[MatchList]) -> None:
    by_key = {(each.source, each.wording): each.matches for each in found}
    ranked = fuse(found).ranked
    placed = [(one, place) for one in ranked for place in one.standings if place.rank is not None]
    for one, place in placed:
        match = by_key[place.source, place.wording][(place.rank or 0) - 1]
        assert (match.chunk_id, match.score) == (one.chunk_id, place.score)
    assert len(placed) == sum(len(each.matches) for each in found)


@given(lists())
def test_what_only_words_found_is_compared_by_meaning_too(found: list[MatchList]) -> None:
    for one in fuse(found).ranked:
        for wording in {place.wording for place in one.standings}:
            assert "dense" in {place.source for place in one.standings if place.wording == wording}


@given(lists())
def test_fused_scores_follow_from_scores_and_scales(found: list[MatchList]) -> None:
    fusion = fuse(found)
    scales = {(scale.source, scale.wording): scale for scale in fusion.scales}

    for one in fusion.ranked:
        expected = 0.0
        for place in one.standings:
            scale = scales[place.source, place.wording]
            span = scale.high - scale.low
            expected += scale.weight * ((place.score - scale.low) / span if span > 0 else 1.0)
        assert one.fused == pytest.approx(expected, abs=1e-6)
        assert -1e-9 <= one.fused <= 1 + 1e-9
    fused = [one.fused for one in fusion.ranked]
    assert fused == sorted(fused, reverse=True)


@given(lists())
def test_a_chunks_cosine_is_the_best_of_its_wordings(found: list[MatchList]) -> None:
    for one in fuse(found).ranked:
        assert one.cosine == max(
            match.cosine
            for each in found
            for match in each.matches
            if match.chunk_id == one.chunk_id and match.cosine is not None
        )


@given(pairs())
def test_one_list_alone_keeps_its_order(both: list[MatchList]) -> None:
    for each in both:
        scores = {match.chunk_id: match.score for match in each.matches}
        assert [scores[one.chunk_id] for one in fuse([each]).ranked] == [match.score for match in each.matches]


def test_without_vectors_there_is_no_cosine() -> None:
    (one,) = fuse([MatchList("keyword", 0, [KeywordMatch(UUID(int=1), 3.0, None)])]).ranked

    assert one.cosine is None


def test_who_is_far_ahead_by_words_stays_first_when_meaning_is_at_a_loss() -> None:
    """Where reciprocal ranks put those first that are in the middle of both lists."""
    dense = [DenseMatch(UUID(int=n), 0.85 - n / 10_000) for n in range(2, 30)]
    keyword = [
        KeywordMatch(UUID(int=1), 20.0, 0.8485),
        *(KeywordMatch(UUID(int=n), 5.0, 0.85 - n / 10_000) for n in range(2, 30)),
    ]

    assert fuse([MatchList("dense", 0, dense), MatchList("keyword", 0, keyword)]).ranked[0].chunk_id == UUID(int=1)


def test_without_vectors_the_order_is_that_of_the_words() -> None:
    keyword = [KeywordMatch(UUID(int=n), 9.0 - n, None) for n in range(1, 5)]

    assert [one.chunk_id.int for one in fuse([MatchList("keyword", 0, keyword)]).ranked] == [1, 2, 3, 4]


def test_a_keyword_search_is_not_ordered_by_meaning() -> None:
    keyword = [KeywordMatch(UUID(int=1), 3.0, 0.1), KeywordMatch(UUID(int=2), 2.0, 0.9)]
    ranked = fuse([MatchList("keyword", 0, keyword)]).ranked

    assert [(one.chunk_id.int, one.cosine) for one in ranked] == [(1, 0.1), (2, 0.9)]


def test_nothing_found_is_nothing_fused() -> None:
    assert fuse([MatchList("dense", 0, []), MatchList("keyword", 0, [])]).ranked == []


@pytest.mark.parametrize(("best", "share"), [(7.0, 1.0), (9.0, 1.0), (3.5, 0.5), (0.7, 0.1)])
def test_words_count_less_where_the_best_match_holds_little_of_the_question(best: float, share: float) -> None:
    found = MatchList("keyword", 0, [KeywordMatch(UUID(int=1), best, 0.5)], asked=10.0)
    (scale,) = fuse([found]).scales
    assert scale.weight == pytest.approx(0.5 * share)
