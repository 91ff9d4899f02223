"""Quotes are word for word, short, and what matches best."""

from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.retrieval.occurrences import find_terms
from services.retrieval.ports import Passage
from services.retrieval.quotes import MAX_QUOTE_CHARS, best_quote
from shared.contracts.questions import Quote
from shared.keywords import query_terms

TEXT = st.text(st.sampled_from("退款订单。！？;.\n  refund order t_order \u3000A1"), max_size=600)


@given(TEXT, st.integers(min_value=0, max_value=10_000), st.sampled_from(["退款", "refund of an order", "?!"]))
def test_a_quote_is_a_short_piece_of_the_text(content: str, offset: int, query: str) -> None:
    quote = quote_of(passage(content, offset), query)

    if not content.strip():
        assert quote is None
        return
    assert quote is not None
    assert ("x" * offset + content)[quote.char_start : quote.char_end] == quote.text
    assert 0 < len(quote.text) <= MAX_QUOTE_CHARS
    assert quote.text == quote.text.strip()


def test_the_repeated_header_of_a_table_is_not_quoted() -> None:
    header = "| order | refund |\n| --- | --- |\n"
    quote = quote_of(passage(f"{header}| A1 | 3 |", 100, len(header)), "refund")

    assert quote is not None
    assert (quote.text, quote.char_start, quote.char_end) == ("| A1 | 3 |", 100, 110)


def quoted(content: str, query: str) -> str:
    quote = quote_of(passage(content, 0), query)
    assert quote is not None
    return quote.text


def quote_of(one: Passage, query: str) -> Quote | None:
    terms = query_terms(query)
    return best_quote(one, find_terms(terms, one.content), terms, [1.0] * len(terms))


def passage(content: str, offset: int, header_chars: int = 0) -> Passage:
    end = offset + len(content) - header_chars
    return Passage(uuid4(), uuid4(), uuid4(), "a.md", 1, 0, "", (), content, offset, end, header_chars=header_chars)


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
