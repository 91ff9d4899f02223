from time import process_time

import pytest

from services.ingestion.parsing.builder import DocumentBuilder
from services.ingestion.parsing.limits import ParseLimits, TooManyHeadings
from services.ingestion.sections import Note, ParsedDocument
from services.ingestion.splitting import split
from services.ingestion.text import TextTooLarge
from shared.contracts.knowledge_settings import SplitSettings


def builder(heading_levels: int = 6) -> DocumentBuilder:
    return DocumentBuilder(str, ParseLimits(), heading_levels)


def texts(document: ParsedDocument) -> list[str]:
    return [document.text[block.start : block.end] for block in document.blocks]


def test_headings_open_sections_over_what_follows_them() -> None:
    build = builder()
    build.paragraph("before")
    build.heading(1, "第一章 总则")
    build.heading(2, "1.1  范围\n一览")
    build.paragraph("one")
    build.paragraph("two\nlines ")
    build.heading(2, "1.2 术语")
    build.code("    x = 1\n")
    document = build.build("Guide")
    assert [(section.title, section.heading_path, section.content) for section in document.sections] == [
        ("Guide", (), "before"),
        ("范围 一览", ("第一章 总则", "1.1 范围 一览"), "one\n\ntwo\nlines"),
        ("术语", ("第一章 总则", "1.2 术语"), "    x = 1"),
    ]
    assert all(document.text[section.start : section.end] == section.content for section in document.sections)
    assert texts(document) == ["    x = 1"]


def test_deep_and_very_long_headings_are_text() -> None:
    build = builder(heading_levels=2)
    build.heading(1, "A")
    build.heading(3, "deep")
    build.heading(2, "long " * 1000)
    (section,) = build.build().sections
    assert section.title == "A"
    assert section.content.startswith("deep\n\nlong long")


def test_list_items_stand_line_under_line() -> None:
    build = builder()
    build.paragraph("Buy:")
    build.item("milk")
    build.item("bread\nrye", depth=1, marker="1. ")
    build.paragraph("Done.")
    assert build.build().text == "Buy:\n\n- milk\n  1. bread\n    rye\n\nDone."


def test_a_table_becomes_a_pipe_table_without_blank_rows_and_columns() -> None:
    build = builder()
    build.table([["状态", "", "a|b"], ["", " ", ""], ["0\n待付款", "", ""], ["1", "", "x", "more", ""]])
    document = build.build()
    assert texts(document) == ["| 状态 | a\\|b |  |\n| --- | --- | --- |\n| 0 待付款 |\n| 1 | x | more |"]
    assert document.text == texts(document)[0]


def test_one_column_is_lines_and_no_block() -> None:
    build = builder()
    build.table([["left | over"], [""], ["second"]])
    build.table([])
    document = build.build()
    assert (document.text, document.blocks) == ("left | over\n\nsecond", ())


def test_each_piece_of_a_long_table_has_its_header() -> None:
    build = builder()
    build.table([["id", "name"], *([str(number), f"the name {number}"] for number in range(200))])
    document = build.build()
    assert len(texts(document)) == 1
    pieces = list(split(document, SplitSettings()))
    assert len(pieces) > 5
    assert all(piece.content.startswith("| id | name |\n| --- | --- |\n| ") for piece in pieces)
    rows = [line for piece in pieces for line in piece.content.split("\n")[2:]]
    assert rows == [f"| {number} | the name {number} |" for number in range(200)]


def test_all_but_code_is_cleaned() -> None:
    build = DocumentBuilder(lambda text: text.replace("noise", ""), ParseLimits())
    build.heading(1, "noise A")
    build.paragraph("noise b")
    build.table([["noise c", "d"], ["1", "noise"]])
    build.item("e noise")
    build.code("noise f")
    build.heading(2, "noise")
    build.paragraph("noise")
    document = build.build()
    assert document.text == "A\n\nb\n\n| c | d |\n| --- | --- |\n| 1 |\n\n- e\n\nnoise f"


def test_text_is_stored_normalised() -> None:
    build = builder()
    build.heading(1, "e\u0301\x00")
    build.paragraph("a\r\nb\ud800\x00")
    build.table([["x\x00", "y"], ["\udfff1", "2"]])
    build.code("\x00c\rd")
    document = build.build("t\x00")
    assert document.text == "é\n\na\nb\n\n| x | y |\n| --- | --- |\n| 1 | 2 |\n\nc\nd"


def test_nothing_makes_no_sections() -> None:
    build = builder()
    build.paragraph(" \n\t")
    build.heading(1, " ")
    build.table([["", ""], [" "]])
    build.code("\n\n")
    document = build.build("title")
    assert (document.text, document.sections, document.blocks) == ("", (), ())


def test_notes_are_kept_but_not_without_end() -> None:
    build = builder()
    for number in range(1000):
        build.note("page_without_text", f"page {number} has no text")
    notes = build.build().notes
    assert notes[0] == Note("page_without_text", "page 0 has no text")
    assert len(notes) == 100


def test_too_much_text_and_too_many_headings_are_refused_early() -> None:
    build = DocumentBuilder(str, ParseLimits(max_chars=10, max_headings=1))
    with pytest.raises(TextTooLarge):
        build.code("12345678901")
    build.heading(1, "A")
    with pytest.raises(TooManyHeadings):
        build.heading(1, "B")
    with pytest.raises(TextTooLarge):
        build.table([["1", "2"], ["3", "4"]])
    with pytest.raises(TextTooLarge):
        build.paragraph("1234567890")


@pytest.mark.parametrize("scale", [1, 4])
def test_sparse_and_wide_tables_and_many_paragraphs_cost_linear_time(scale: int) -> None:
    build = DocumentBuilder(str, ParseLimits())
    began = process_time()
    build.table([["x"] * 20_000 * scale, *([["y"]] * 20_000 * scale)])
    for _ in range(20_000 * scale):
        build.paragraph("word")
    assert build.build().sections
    assert process_time() - began < 1.5 * scale
