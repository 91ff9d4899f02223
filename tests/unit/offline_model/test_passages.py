import pytest

from deploy.offline_model.passages import passages
from deploy.offline_model.terms import terms, token_count, tokens

TABLE = "| 字段 | 类型 |\n|---|---|\n| id | BIGINT |\n| name | TEXT |"
DDL = "```sql\nCREATE TABLE t (\n  id BIGINT\n);\n```"


def texts(content: str) -> list[str]:
    return [passage.text for passage in passages(content)]


def test_prose_is_cut_into_sentences() -> None:
    assert texts("# Head\n\nIt costs 3.5 EUR. It is red.\nVery red!") == [
        "It costs 3.5 EUR.",
        "It is red.",
        "Very red!",
    ]
    assert texts("订单表记录\n交易。超时取消！") == ["订单表记录交易。", "超时取消！"]


def test_tables_are_quoted_whole_or_by_rows_under_their_header() -> None:
    whole, *rows = passages(TABLE)
    assert (whole.text, whole.is_table) == (TABLE, True)
    assert [row.text for row in rows] == ["| id | BIGINT |", "| name | TEXT |"]
    assert {row.header for row in rows} == {"| 字段 | 类型 |\n|---|---|"}


def test_long_tables_only_by_rows() -> None:
    rows = "\n".join(f"| {n} | x |" for n in range(60))
    assert not any(passage.is_table for passage in passages(f"| a | b |\n|---|---|\n{rows}"))


def test_statements_stay_whole() -> None:
    assert texts(f"Before.\n\n{DDL}\nAfter.") == ["Before.", DDL, "After."]
    assert texts("CREATE TABLE t (\n  id BIGINT\n);\nAfter.") == [DDL, "After."]
    many = "\n".join(f"CREATE TABLE t{n} (\n  id BIGINT\n);" for n in range(20))
    assert texts(f"```sql\n{many}\n```")[1] == "```sql\nCREATE TABLE t1 (\n  id BIGINT\n);\n```"


def test_a_list_goes_with_the_sentence_that_opens_it() -> None:
    items = ["- the base\n  of steel", "- the lid"]
    assert texts("It covers:\n\n- the base\n  of steel\n- the lid") == ["\n".join(["It covers:", *items]), *items]


@pytest.mark.parametrize("content", ["", "\n\n", "```", "|", "| a |", "- ", "#", "CREATE TABLE x"])
def test_fragments_are_harmless(content: str) -> None:
    assert all(passage.text for passage in passages(content))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("What are the policies?", {"policy"}),
        ("order_items", {"order_item", "order", "item"}),
        ("订单表有哪些字段？", {"订单", "单表", "字段"}),
        ("addresses and the status", {"address", "status"}),
        ("", set()),
    ],
)
def test_terms(text: str, found: set[str]) -> None:
    assert terms(text) == found


def test_tokens_give_the_text_back() -> None:
    text = "Hello, wörld!\n\n| 订单 | x_1 |\t😀 end "
    assert "".join(tokens(text)) == text
    assert token_count("one two 三四") == 4
