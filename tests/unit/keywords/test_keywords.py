import re
from time import process_time

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from shared.keywords import index_terms, query_terms, traditional_terms


def finds(query: str, text: str) -> bool:
    """Whether every term of the question is one of the text's."""
    terms = query_terms(query)
    return bool(terms) and set(terms) <= set(index_terms(text))


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("VA004校验逻辑", "va004 校验 逻辑"),
        ("va004 校验逻辑", "接口ＶＡ００４的校验逻辑如下"),
        ("order", "SELECT * FROM t_order_header"),
        ("T_ORDER_HEADER", "表`t_order_header`记录订单"),
        ("header", "class OrderHeader"),
        ("数据库", "分布式数据库系统"),
        ("诸葛瑾", "却说诸葛瑾回见孙权"),
        ("訂單", "資料庫訂單管理"),
        ("订单", "資料庫訂單管理"),
        ("後臺的頭髮", "后台的头发"),
        ("カタ", "カタカナ"),
        ("returns policy", "Our policy for returning goods: a return takes 30 days"),
        ("v2.0.2", "since v2.0.2 the default is off"),
        ("𠮷野家", "去𠮷野家吃饭"),
    ],
)
def test_a_question_finds_the_text(query: str, text: str) -> None:
    assert finds(query, text)


@pytest.mark.parametrize(
    ("query", "text"), [("支付", "订单的状态"), ("한국", "中国"), ("VA004", "VA005"), ("order", "border")]
)
def test_a_question_does_not_find_another_text(query: str, text: str) -> None:
    assert not set(query_terms(query)) & set(index_terms(text))


def test_terms_are_counted() -> None:
    assert index_terms("订单 order Orders，订单!") == {"订单": 2, "order": 2}


def test_stop_words_are_left_out_of_questions_only_where_words_remain() -> None:
    assert query_terms("什么是订单的状态") == ["订单", "状态"]
    assert query_terms("what is it") == ["what", "is", "it"]
    assert "是" in index_terms("什么是订单")


def test_a_question_of_two_thousand_words_is_cut() -> None:
    question = " ".join(f"word{number}" for number in range(2_000))
    assert query_terms(question) == [f"word{number}" for number in range(256)]
    assert len(query_terms(question, limit=10)) == 10


@pytest.mark.parametrize("text", ["", " \n", "？！……", "''\\:&|"])
def test_no_words_no_terms(text: str) -> None:
    assert query_terms(text) == []
    assert index_terms(text) == {}


@given(st.text(max_size=100))
@hypothesis_settings(max_examples=50, deadline=None)
def test_terms_need_no_quoting_and_are_the_same_on_both_sides(text: str) -> None:
    terms = index_terms(text)
    assert all(re.fullmatch(r"[^\s'\"\\:&|!()<>*,]{1,64}", term) for term in terms)
    assert set(query_terms(text)) <= set(terms)
    assert set(traditional_terms(text)) <= set(index_terms(text, fold_variants=False))


@pytest.mark.parametrize("text", ["字" * 100_000, "a" * 300_000, "a_" * 100_000, "word " * 50_000, "aB" * 100_000])
def test_the_time_is_linear(text: str) -> None:
    began = process_time()
    index_terms(text)
    assert process_time() - began < 1.5


def test_a_question_in_traditional_characters_finds_texts_that_are_not_folded() -> None:
    assert query_terms("鍵盤") == ["键盘"]
    assert set(traditional_terms("鍵盤")) & set(index_terms("滑鼠與鍵盤", fold_variants=False))
    assert traditional_terms("键盘 order") == []
