"""The scale of scores."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.retrieval.relevance import ScoreRange, relevance

SHARES = st.floats(min_value=0, max_value=1)
COSINES = st.floats(min_value=-1, max_value=1)
RANGES = st.tuples(st.floats(-1, 0.6), st.floats(0.01, 0.4)).map(lambda pair: ScoreRange(pair[0], sum(pair)))


@given(COSINES, SHARES, RANGES)
def test_scores_lie_between_0_and_1(cosine: float, coverage: float, score_range: ScoreRange) -> None:
    assert 0 <= relevance(cosine, coverage, score_range).score <= 1


@given(COSINES, COSINES, SHARES, SHARES, RANGES)
def test_a_better_fit_never_scores_less(
    cosine: float, other: float, coverage: float, other_coverage: float, score_range: ScoreRange
) -> None:
    worse = relevance(min(cosine, other), min(coverage, other_coverage), score_range)
    better = relevance(max(cosine, other), max(coverage, other_coverage), score_range)

    assert worse.score <= better.score


@pytest.mark.parametrize(
    ("cosine", "coverage", "expected"),
    [(0.94, 1.0, 1.0), (0.82, 0.0, 0.0), (0.5, 0.0, 0.0), (0.88, 0.5, 0.5), (0.99, 0.0, 0.5), (None, 0.25, 0.25)],
)
def test_the_models_range_is_stretched_and_words_add_their_share(
    cosine: float | None, coverage: float, expected: float
) -> None:
    assert relevance(cosine, coverage, ScoreRange(0.82, 0.94)).score == pytest.approx(expected)
