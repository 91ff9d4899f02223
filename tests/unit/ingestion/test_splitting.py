from itertools import pairwise
from time import process_time
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import ValidationError

from services.ingestion.parsing.limits import ParseLimits
from services.ingestion.parsing.markdown import parse_markdown
from services.ingestion.parsing.plain import parse_plain
from services.ingestion.sections import Block, Heading, ParsedDocument, Piece, build_sections
from services.ingestion.splitting import split
from services.ingestion.text import normalise
from shared.contracts.knowledge_settings import KnowledgeBaseSettings, SplitMethod, SplitSettings
from shared.tokens import count_tokens

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
    " " * 100,
    "e\u0301" * 40,
    "👩\u200d👩\u200d👧" * 20,
    "x" * 400,
    "<div>\n",
    "| 列 | 值 |\n|---|---|\n" + "| 一行数据 | 100 |\n" * 30,
    "Dr. Li came at 3.30 p.m. to see it. He left! ",
    "---\ntitle: a\n---\n",
    "### \n",
]
DOCUMENTS = st.lists(st.sampled_from(LINES) | st.text(max_size=20).map(normalise), max_size=15).map("".join)
METHODS = list(get_args(SplitMethod))
SETTINGS = st.builds(
    SplitSettings,
    method=st.sampled_from(METHODS),
    chunk_size=st.sampled_from([100, 120, 500]),
    overlap=st.sampled_from([0, 10, 50]),
    max_section=st.sampled_from([100, 300, 800]),
    max_section_tokens=st.sampled_from([50, 480]),
    parent_size=st.sampled_from([1000, 1500]),
)


HEADING_MARKS = {"#", "##", "###", "---", "="}


def split_markdown(text: str, settings: SplitSettings) -> list[Piece]:
    return list(split(parse_markdown(text, limits=ParseLimits()), settings))


def split_plain(text: str, settings: SplitSettings | None = None) -> list[Piece]:
    return list(split(parse_plain(text), settings or SplitSettings()))


@given(DOCUMENTS, SETTINGS, st.booleans())
@hypothesis_settings(max_examples=60, deadline=None)
def test_the_pieces_hold_all_text_in_order(text: str, settings: SplitSettings, is_markdown: bool) -> None:
    document = parse_markdown(text, limits=ParseLimits()) if is_markdown else parse_plain(text)
    position = document.body_start
    for ordinal, piece in enumerate(split(document, settings)):
        assert piece.ordinal == ordinal
        assert piece.content[piece.header_chars :] == text[piece.start : piece.end]
        assert piece.content == piece.content.rstrip() != ""
        assert piece.end > position
        # A heading's own line lives in the paths; the recursive method makes no difference between headings and text.
        in_path = set() if settings.method == "recursive" else HEADING_MARKS.union(*map(str.split, piece.heading_path))
        assert set(text[position : piece.start].split()) <= in_path
        position = piece.end
    assert not text[position:].strip()


@given(DOCUMENTS, SETTINGS)
@hypothesis_settings(max_examples=60, deadline=None)
def test_no_piece_is_longer_than_it_may_be(text: str, settings: SplitSettings) -> None:
    for piece in split_markdown(text, settings):
        length, parent = len(piece.content), piece.parent
        is_read_at_once = (
            length <= settings.section_limit and count_tokens(piece.content) <= settings.max_section_tokens + 1
        )
        assert length <= settings.chunk_size or is_read_at_once
        assert parent is None or len(parent.content) <= settings.parent_size


@pytest.mark.parametrize(
    "text",
    [
        "订单的状态由支付决定，退款之后不再变化。" * 100,
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


def test_a_section_stays_whole_as_long_as_a_model_reads_it_at_once() -> None:
    english = "The parcel leaves the warehouse on the day of the order. " * 32  # 1,824 characters, 468 tokens
    chinese = "订单的状态由支付决定，退款之后不再变化。" * 27  # 540 characters, 464 tokens
    bodies = [english, chinese, english + english[:300], chinese + chinese]
    pieces = split_markdown("\n".join(f"# {n}\n\n{body}\n" for n, body in enumerate(bodies)), SplitSettings())
    assert [len([piece for piece in pieces if piece.title == str(n)]) for n in range(4)] == [1, 1, 6, 3]
    assert {piece.heading_path for piece in pieces} == {("0",), ("1",), ("2",), ("3",)}


def test_tables_and_code_stay_whole_where_they_fit() -> None:
    table = "| a | b |\n|---|---|\n" + "| 一 | 二 |\n" * 40
    code = "```sql\n" + "CREATE INDEX ON t (a);\n" * 20 + "```"
    text = f"# A\n\n{'句子。' * 100}\n\n{table}\n{'句子。' * 100}\n\n{code}\n\n{'句子。' * 100}\n"
    pieces = split_markdown(text, SplitSettings())
    assert sum(table.strip() in piece.content for piece in pieces) == 1
    assert sum(code in piece.content for piece in pieces) == 1
    assert sum(piece.content.count("CREATE INDEX") for piece in pieces) == 20  # nothing repeated


@pytest.mark.parametrize("method", METHODS)
def test_a_long_table_is_cut_at_its_rows_under_its_header(method: SplitMethod) -> None:
    header = "| a | b |\n|---|---|\n"
    rows = [f"| row {number} | some value |" for number in range(200)]
    text = f"# A\n\nThe rows are:\n\n{header}" + "\n".join(rows) + "\n\nThat is all.\n"
    pieces = split_markdown(text, SplitSettings(method=method, chunk_size=500, overlap=50, parent_size=1000))
    assert len(pieces) > 10
    assert all(header in piece.content for piece in pieces)
    assert [piece.header_chars for piece in pieces] == [0] + [len(header)] * (len(pieces) - 1)
    assert all(len(piece.content) <= 500 for piece in pieces)
    lines = [line for piece in pieces for line in piece.content[piece.header_chars :].split("\n")]
    assert [line for line in lines if line.startswith("| row")] == rows


def test_a_header_that_takes_half_of_a_piece_is_not_repeated() -> None:
    table = f"| {'wide ' * 20}| b |\n|---|---|\n" + "| 1 | 2 |\n" * 50
    pieces = split_markdown(table, SplitSettings(method="recursive", chunk_size=120, overlap=0, max_section=120))
    assert len(pieces) > 4
    assert {piece.header_chars for piece in pieces} == {0}


def test_code_that_looks_like_a_table_has_no_header() -> None:
    code = "```\n" + "a | b\n" * 200 + "```\n"
    assert {piece.header_chars for piece in split_markdown(code, SplitSettings())} == {0}


def test_recursive_splitting_ignores_headings_but_tells_the_section() -> None:
    text = f"# A\n\n{'句子。' * 150}\n\n## B\n\n{'句子。' * 150}\n"
    pieces = split_markdown(text, SplitSettings(method="recursive"))
    assert pieces[0].content.startswith("# A")
    assert any("## B" in piece.content for piece in pieces)
    assert (pieces[0].title, pieces[-1].heading_path) == ("A", ("A", "B"))


@pytest.mark.parametrize(
    "text",
    [
        "字" * 50_000,
        "word " * 10_000,
        "a" + " " * 50_000 + "b",
        ("字" * 10 + " " * 490) * 100,
        "! " * 25_000,
        "." * 50_000,
    ],
    ids=["no-boundaries", "words", "white", "gaps", "sentences", "stops"],
)
@pytest.mark.parametrize("method", METHODS)
def test_the_time_is_linear(text: str, method: SplitMethod) -> None:
    began = process_time()
    pieces = split_plain(text, SplitSettings(method=method, chunk_size=200, overlap=100))
    assert process_time() - began < 2
    assert len(pieces) < 10_000


@pytest.mark.parametrize("method", METHODS)
def test_the_time_is_linear_in_the_number_of_blocks(method: SplitMethod) -> None:
    count, part = 4_000, "# H\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    places = range(0, count * len(part), len(part))
    headings = [Heading(1, "H", start, start + 3) for start in places]
    text = part * count
    sections = tuple(build_sections(text, headings))
    blocks = tuple(Block(start + 4, start + len(part) - 1) for start in places)
    began = process_time()
    assert len(list(split(ParsedDocument(text, sections, blocks), SplitSettings(method=method)))) >= count // 20
    assert process_time() - began < 1.5


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"overlap": 300}, "overlap must be at most half of chunk_size"),
        ({"chunk_size": 10}, "chunk_size"),
        ({"max_section": 10**6}, "max_section"),
        ({"max_section_tokens": 0}, "max_section_tokens"),
        ({"heading_levels": 0}, "heading_levels"),
        ({"method": "by_page"}, "method"),
        ({"method": "parent_child", "parent_size": 300}, "parent_size must be at least twice chunk_size"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_settings_out_of_bounds_are_refused_by_name(wrong: dict[str, object], what: str) -> None:
    with pytest.raises(ValidationError, match=what):
        SplitSettings.model_validate(wrong)


def test_settings_of_the_previous_release_still_hold() -> None:
    stored = {"method": "recursive", "chunk_size": 8000, "overlap": 50, "max_section": 800, "heading_levels": 3}
    settings = SplitSettings.model_validate(stored)
    assert stored.items() <= settings.model_dump().items()
    assert SplitSettings.model_validate(settings.model_dump()) == settings


def test_the_previous_release_reads_what_is_stored_unless_what_is_new_is_used() -> None:
    sizes = {"method", "chunk_size", "overlap", "max_section", "heading_levels"}
    assert set(KnowledgeBaseSettings().stored()) == {"splitting", "cleaning", "embed"}
    assert set(KnowledgeBaseSettings().stored()["splitting"]) == sizes
    used = KnowledgeBaseSettings(splitting=SplitSettings(parent_size=900))
    assert set(used.stored()["splitting"]) == {*sizes, "parent_size"}
    assert KnowledgeBaseSettings.model_validate(used.stored()) == used


def test_children_are_small_unless_their_size_is_given() -> None:
    assert SplitSettings.model_validate({"method": "parent_child"}).chunk_size == 200
    assert SplitSettings.model_validate({"method": "parent_child", "chunk_size": 300}).chunk_size == 300
    assert SplitSettings().chunk_size == 500
