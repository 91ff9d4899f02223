"""The figures of ranked results."""

import math

import pytest

from tests.evaluation.comparing import fold
from tests.evaluation.scoring import Judged, figures
from tests.evaluation.sets import Source, holds


def test_figures_of_one_right_result_in_third_place() -> None:
    assert figures([Judged([False, False, True], 1)]) == {
        "hit@1": 0.0,
        "hit@5": 1.0,
        "hit@10": 1.0,
        "MRR@10": pytest.approx(1 / 3),
        "nDCG@10": pytest.approx(0.5),
    }


def test_figures_are_means_over_questions() -> None:
    found = figures([Judged([True], 1), Judged([], 1)])
    assert set(found.values()) == {0.5}


def test_ndcg_counts_all_right_results_that_there_are() -> None:
    one_of_two = figures([Judged([True, False], 2)])["nDCG@10"]
    assert one_of_two == pytest.approx(1 / (1 + 1 / math.log2(3)))


def test_what_stands_beyond_the_tenth_place_does_not_count() -> None:
    assert set(figures([Judged([False] * 10 + [True], 1)]).values()) == {0.0}


@pytest.mark.parametrize(
    ("content", "quote", "held"),
    [
        ("字段 `role` 的\n取值：ADMIN", "字段role的取值：admin", True),
        ("字段 role", "字段 rule", False),
        ("We list [all the rules](/rules) of the house here", "we list all the rules of the house", True),
        ("Something else entirely is said by this text", "we list all the rules of the house", False),
        ("短", "短 but English words follow it here", False),
    ],
)
def test_a_text_holds_a_quote(content: str, quote: str, held: bool) -> None:
    assert holds(content, quote) is held


def test_folding_takes_width_case_white_space_and_marks() -> None:
    assert fold("ＶＡ **004** _x_\n|a|") == "va004xa"


def test_the_passage_at_an_offset() -> None:
    source = Source("a.md", "aaabbb", ("first", "second"), (0, 3))
    assert [source.passage_at(offset) for offset in (0, 2, 3, 5)] == ["first", "first", "second", "second"]
