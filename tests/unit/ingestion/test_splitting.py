from itertools import pairwise
from time import process_time

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import ValidationError

from services.ingestion.parsing.limits import ParseLimits
from services.ingestion.parsing.markdown import parse_markdown
from services.ingestion.parsing.plain import parse_plain
from services.ingestion.sections import Piece
from services.ingestion.splitting import split
from shared.contracts.knowledge_settings import SplitSettings

LINES = [
    "# One\n",
    "## 3.1 二\n",
    "\n",
    "| a | b |\n|---|---|\n",
    "| 一 | 2 |\n" * 20,
    "```\n",
    "code x\n" * 15,
    "字" * 90,
    "句子，" * 40,
    "word " * 50,
    "。",
    "end. ",
    "\n---\n",
    "- item\n",
    " " * 200,
    "e\u0301" * 40,
    "👩\u200d👩\u200d👧" * 20,
    "x" * 400,
    "<div>\n",
]
DOCUMENTS = st.lists(st.sampled_from(LINES), max_size=15).map("".join)
SETTINGS = st.builds(
    SplitSettings,
    method=st.sampled_from(["heading", "recursive"]),
    chunk_size=st.sampled_from([100, 120, 500]),
    overlap=st.sampled_from([0, 10, 50]),
    max_section=st.sampled_from([100, 300, 800]),
)


def split_markdown(text: str, settings: SplitSettings) -> list[Piece]:
    return list(split(parse_markdown(text, limits=ParseLimits()), settings))


def split_plain(text: str, settings: SplitSettings | None = None) -> list[Piece]:
    return list(split(parse_plain(text), settings or SplitSettings()))


@given(DOCUMENTS, SETTINGS)
@hypothesis_settings(max_examples=60, deadline=None)
def test_the_pieces_hold_all_text_in_order(text: str, settings: SplitSettings) -> None:
    document = parse_markdown(text, limits=ParseLimits())
    pieces = list(split(document, settings))
    uncovered, position = "", document.body_start
    for ordinal, piece in enumerate(pieces):
        assert piece.ordinal == ordinal
        assert piece.content == text[piece.start : piece.end]
        assert piece.content == piece.content.rstrip() != ""
        assert piece.end > position
        uncovered += text[position : piece.start]
        position = piece.end
    uncovered += text[position:]
    # A heading's own line lives in the paths; the recursive method makes no difference between headings and text.
    by_heading = settings.method == "heading"
    in_paths = (
        {word for piece in pieces for name in piece.heading_path for word in name.split()} if by_heading else set()
    )
    assert set(uncovered.split()) - in_paths <= ({"#", "##", "---"} if by_heading else set())


@given(DOCUMENTS, SETTINGS)
@hypothesis_settings(max_examples=60, deadline=None)
def test_no_piece_is_longer_than_it_may_be(text: str, settings: SplitSettings) -> None:
    longest = settings.section_limit + settings.overlap + settings.overlap // 2
    assert all(len(piece.content) <= longest for piece in split_markdown(text, settings))


@pytest.mark.parametrize(
    "text",
    [
        "订单的状态由支付决定，退款之后不再变化。" * 200,
        "The parcel leaves the warehouse on the day of the order. " * 100,
        "一行没有标点的文字\n" * 300,
        "字" * 3000,
    ],
    ids=["chinese", "english", "lines", "no-boundaries"],
)
def test_neighbours_share_at_least_the_overlap(text: str) -> None:
    pieces = split_plain(text)
    assert len(pieces) > 3
    for first, second in pairwise(pieces):
        shared = first.end - second.start
        assert 50 <= shared <= 75
        assert first.content[-shared:] == second.content[:shared]
        assert len(first.content) <= 500


def test_pieces_end_with_sentences() -> None:
    pieces = split_plain("订单的状态由支付决定，退款之后不再变化。" * 100 + "Is it paid? Yes, it is paid. " * 100)
    assert {piece.content[-1] for piece in pieces} <= {"。", ".", "?"}


def test_paragraphs_are_stronger_than_sentences() -> None:
    paragraph = "短句。" * 100
    pieces = split_plain(f"{paragraph}\n\n{paragraph}\n\n{paragraph}", SplitSettings(overlap=0))
    assert [piece.content for piece in pieces] == [paragraph] * 3


def test_a_hard_cut_tears_no_character_and_no_word() -> None:
    family = "👩\u200d👩\u200d👧"
    pieces = split_plain(family * 200, SplitSettings(chunk_size=101, overlap=0))
    assert len(pieces) > 5
    assert all(len(piece.content) % len(family) == 0 for piece in pieces)
    mixed = split_plain("使用PostgreSQL数据库" * 100, SplitSettings(chunk_size=100, overlap=0))
    assert all(piece.content.count("Postgre") == piece.content.count("PostgreSQL") for piece in mixed)


def test_a_section_stays_whole_up_to_its_limit() -> None:
    body = "句子。" * 250
    pieces = split_markdown(f"# A\n\n{body}\n\n# B\n\n{body}句子。{'句子。' * 50}\n", SplitSettings())
    assert [piece.content for piece in pieces if piece.title == "A"] == [body]
    assert len([piece for piece in pieces if piece.title == "B"]) > 1
    assert {piece.heading_path for piece in pieces} == {("A",), ("B",)}


def test_tables_and_code_stay_whole_where_they_fit() -> None:
    table = "| a | b |\n|---|---|\n" + "| 一 | 二 |\n" * 40
    code = "```sql\n" + "CREATE INDEX ON t (a);\n" * 20 + "```"
    text = f"# A\n\n{'句子。' * 100}\n\n{table}\n{'句子。' * 100}\n\n{code}\n\n{'句子。' * 100}\n"
    pieces = split_markdown(text, SplitSettings())
    assert sum(table.strip() in piece.content for piece in pieces) == 1
    assert sum(code in piece.content for piece in pieces) == 1
    assert sum(piece.content.count("CREATE INDEX") for piece in pieces) == 20  # nothing repeated


def test_a_long_table_is_cut_at_its_rows_without_repetition() -> None:
    rows = [f"| row {number} | some value |" for number in range(200)]
    text = "# A\n\n| a | b |\n|---|---|\n" + "\n".join(rows) + "\n"
    pieces = split_markdown(text, SplitSettings())
    lines = [line for piece in pieces for line in piece.content.split("\n")]
    assert len(pieces) > 5
    assert lines[2:] == rows


def test_recursive_splitting_ignores_headings_but_tells_the_section() -> None:
    text = f"# A\n\n{'句子。' * 150}\n\n## B\n\n{'句子。' * 150}\n"
    pieces = split_markdown(text, SplitSettings(method="recursive"))
    assert pieces[0].content.startswith("# A")
    assert any("## B" in piece.content for piece in pieces)
    assert (pieces[0].title, pieces[-1].heading_path) == ("A", ("A", "B"))


@pytest.mark.parametrize(
    "text",
    ["字" * 1_000_000, "word " * 200_000, "a" + " " * 1_000_000 + "b", ("字" * 10 + " " * 490) * 2_000],
    ids=["no-boundaries", "words", "white", "gaps"],
)
def test_the_time_is_linear(text: str) -> None:
    began = process_time()
    pieces = split_plain(text, SplitSettings(chunk_size=200, overlap=100))
    assert process_time() - began < 3
    assert len(pieces) < 50_000


@pytest.mark.parametrize(
    "wrong", [{"overlap": 300}, {"chunk_size": 10}, {"max_section": 10**6}, {"heading_levels": 0}, {"unknown": 1}]
)
def test_settings_out_of_bounds_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        SplitSettings.model_validate(wrong)
