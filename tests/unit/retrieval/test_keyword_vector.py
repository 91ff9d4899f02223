"""The literals that PostgreSQL reads as tsvector and tsquery. That it reads them so is tested with a database."""

from shared.keyword_vector import MAX_FREQUENCY, keyword_query_text, keyword_vector_text
from shared.keywords import index_terms


def test_frequencies_become_positions() -> None:
    assert keyword_vector_text({"once": 1, "退款": 3}) == "'once' '退款':1,2,3"


def test_frequencies_are_capped() -> None:
    assert keyword_vector_text({"often": 10_000}) == keyword_vector_text({"often": MAX_FREQUENCY})


def test_nothing_is_an_empty_vector() -> None:
    assert keyword_vector_text({}) == ""


def test_quotes_and_backslashes_cannot_end_a_term() -> None:
    assert keyword_query_text("it's \\") == "'it''s \\\\'"
    assert keyword_vector_text({"' & 'x": 1}) == "''' & ''x'"


def test_terms_of_a_text_fit() -> None:
    assert "'t_order_header'" in keyword_vector_text(index_terms("the table t_order_header"))
