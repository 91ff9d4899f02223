"""Where terms are found in texts, and how much of a question these cover."""

import numpy as np
import pytest

from services.retrieval.occurrences import coverage, find_terms, presence, weigh


@pytest.mark.parametrize(
    ("term", "text", "starts"),
    [
        ("退款", "退款与退款", (0, 3)),
        ("refund", "Refunds and a REFUND", (0, 14)),  # by its stem, in any case
        ("refund", "prerefund, refundx", ()),  # in a word, and in another word
        ("order", "t_order_header", (2,)),
        ("t_order_header", "see T_ORDER_HEADER", (4,)),
        ("va004", "错误ＶＡ００４在此", (2,)),  # full width, right behind Chinese
        ("order", "", ()),
        ("订单", "資料庫訂單", (3,)),
    ],
)
def test_terms_are_found_where_keyword_search_would_find_them(term: str, text: str, starts: tuple[int, ...]) -> None:
    assert find_terms([term], text).starts == (starts,)


def test_the_positions_of_a_term_are_bounded() -> None:
    assert len(find_terms(["退款"], "退款" * 1000).starts[0]) == 32


def test_coverage_is_the_weighted_share_of_the_terms() -> None:
    terms = ["refund", "kettle", "order"]
    texts = [find_terms(terms, text) for text in ("refund", "refund of an order", "nothing", "kettle refund order")]
    held = presence(texts, 3)

    assert coverage(held, np.array([1.0, 2.0, 1.0])).tolist() == [0.25, 0.5, 0.0, 1.0]


def test_rare_terms_weigh_more_and_a_missing_one_most() -> None:
    terms = ["common", "rare", "missing"]
    texts = [find_terms(terms, text) for text in ("common", "common", "common rare", "common")]
    common, rare, missing = weigh(presence(texts, 3))

    assert 0 < common < rare < missing


def test_no_terms_cover_nothing() -> None:
    held = presence([find_terms([], "text")], 0)

    assert coverage(held, weigh(held)).tolist() == [0.0]
