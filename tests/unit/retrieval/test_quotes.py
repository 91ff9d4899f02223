"""Quotes are word for word, short, and what matches best."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.retrieval.quotes import MAX_QUOTE_CHARS, best_quote
from shared.keywords import query_terms

TEXT = st.text(st.sampled_from("退款订单。！？;.\n  refund order t_order \u3000A1"), max_size=600)


@given(TEXT, st.integers(min_value=0, max_value=10_000), st.sampled_from(["退款", "refund of an order", "?!"]))
def test_a_quote_is_a_short_piece_of_the_text(content: str, offset: int, query: str) -> None:
    terms = query_terms(query)
    quote = best_quote(content, offset, terms, np.ones(len(terms)))

    if not content.strip():
        assert quote is None
        return
    assert quote is not None
    assert ("x" * offset + content)[quote.char_start : quote.char_end] == quote.text
    assert 0 < len(quote.text) <= MAX_QUOTE_CHARS
    assert quote.text == quote.text.strip()


def quoted(content: str, query: str) -> str:
    terms = query_terms(query)
    quote = best_quote(content, 0, terms, np.ones(len(terms)))
    assert quote is not None
    return quote.text


FILLER = "这一句话只是用来占位置的，与问题没有任何关系，写得足够长。" * 6


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("发票抬头怎么改？", "修改发票抬头要在开票之前。"),
        ("what is t_order_header", "The table t_order_header has one row for each order."),
        ("ＶＡ００４", "错误码 VA004 表示余额不足。"),
    ],
)
def test_the_sentence_that_matches_is_quoted(query: str, sentence: str) -> None:
    assert sentence in quoted(f"{FILLER}\n{sentence}\n{FILLER}", query)


def test_out_of_a_long_sentence_the_part_that_matches_is_quoted() -> None:
    assert "退款期限" in quoted("甲" * 700 + "退款期限" + "乙" * 700, "退款期限")


def test_without_a_match_the_beginning_is_quoted() -> None:
    assert quoted("First. " + "Then more words. " * 40, "退款").startswith("First.")


def test_neighbours_fill_the_quote() -> None:
    assert quoted("Before. The refund takes long. After.", "refund") == "Before. The refund takes long. After."
