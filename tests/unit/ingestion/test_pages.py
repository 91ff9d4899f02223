"""Every piece says which pages it stands on, however it was cut, cleaned and joined."""

from collections.abc import Callable
from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from services.ingestion.pages import PageStart, pages_between
from services.ingestion.parsing.builder import DocumentBuilder
from services.ingestion.parsing.documents import parse
from services.ingestion.parsing.limits import ParseLimits
from services.ingestion.parsing.pdf import parse_pdf
from services.ingestion.parsing.worker import IsolatedParser
from services.ingestion.sections import ParsedDocument, Piece
from services.ingestion.splitting import split
from shared.contracts.knowledge_settings import KnowledgeBaseSettings, SplitMethod, SplitSettings
from tests.support.pdf_files import PdfFile, Text, lines
from tests.unit.ingestion.office import pptx, shape

FULL = "this line of words goes on to the right side of its column until {:02} and"


def prose(first: int, count: int) -> list[str]:
    """Lines that all go on in the next one, told apart by a number."""
    return [FULL.format(number) for number in range(first, first + count)]


def read(file: PdfFile, clean: Callable[[str], str] = str) -> ParsedDocument:
    builder = DocumentBuilder(clean, ParseLimits())
    parse_pdf(file.to_bytes(), builder, ParseLimits())
    return builder.build()


def texts_by_page(document: ParsedDocument) -> dict[int | None, str]:
    ends = [*(start.offset for start in document.pages[1:]), len(document.text)]
    pairs = zip(document.pages, ends, strict=True)
    return {start.page: document.text[start.offset : end].strip() for start, end in pairs}


def test_a_paragraph_that_goes_on_is_on_both_pages() -> None:
    file = PdfFile([lines(*prose(0, 5)), lines(*prose(5, 5)), lines(*prose(10, 5))])
    document = read(file)
    assert document.text == " ".join(prose(0, 15))
    assert texts_by_page(document) == {
        1: " ".join(prose(0, 5)),
        2: " ".join(prose(5, 5)),
        3: " ".join(prose(10, 5)),
    }
    pieces = list(split(document, SplitSettings(chunk_size=200, overlap=40)))
    assert len(pieces) > 5
    assert all(piece.pages == expected_pages(piece) for piece in pieces)
    assert {piece.pages for piece in pieces} >= {(1, 1), (1, 2), (3, 3)}


def expected_pages(piece: Piece) -> tuple[int, int]:
    """By the numbers of the lines whose begin is in the piece, or whose end is."""
    content = piece.content
    numbers = [number for number in range(15) if f"until {number:02}" in content]
    first, last = numbers[0], numbers[-1]
    begun = content.rpartition(f"until {last:02} and ")[2]
    if begun and begun != content:
        last += 1
    return first // 5 + 1, min(last, 14) // 5 + 1


def test_a_word_that_is_broken_between_two_pages_is_on_both() -> None:
    ends = "the end of this page has a line whose last word of them all is bro-"
    begins = "ken and mended, and so it is one that stands on both of them, as it is"
    document = read(PdfFile([lines(*prose(0, 3), ends), lines(begins, *prose(5, 3))]))
    assert "word of them all is broken and mended" in document.text
    second = document.pages[1]
    assert document.text[second.offset :].startswith("ken and mended")


def test_headings_and_tables_are_on_their_pages() -> None:
    rows = [("Name", "Count", "Price"), *((f"part {n}", f"{n} pieces", f"{n}.50") for n in range(1, 5))]
    table = [
        Text(72 + 150 * column, 700 - 14 * row, text, 11)
        for row, cells in enumerate(rows)
        for column, text in enumerate(cells)
    ]
    pages = [lines(*prose(0, 3)), table, [Text(72, 770, "Second part", 22), *lines(*prose(3, 3), top=700)]]
    document = read(PdfFile(pages, outline=[(1, "Second part", 2)]))
    found = texts_by_page(document)
    assert found[1] == " ".join(prose(0, 3))
    assert found[2].splitlines()[0] == "| Name | Count | Price |"
    assert found[3].startswith("Second part")
    assert [piece.pages for piece in split(document, SplitSettings())] == [(1, 2), (3, 3)]


def test_a_page_without_text_is_counted() -> None:
    document = read(PdfFile([lines("The first."), [], lines("The third.")]))
    assert texts_by_page(document) == {1: "The first.", 3: "The third."}


def test_a_stamp_across_a_page_leaves_the_last_section_on_its_pages() -> None:
    stamp = Text(200, 200, "DRAFT", 40, angle=(0.5, 0.866), letter_gap=40)
    document = read(PdfFile([[*lines(*prose(0, 3)), stamp], lines(*prose(3, 3))]))
    assert document.text.endswith("DRAFT")
    assert texts_by_page(document)[None] == "DRAFT"
    assert [piece.pages for piece in split(document, SplitSettings(chunk_size=2000))] == [(1, 2)]


@pytest.mark.parametrize("noise", ["<b>{}</b>", "e\u0301 {}"], ids=["cleaned", "normalised"])
def test_pages_begin_in_the_cleaned_text(noise: str) -> None:
    first = " ".join(noise.format(word) for word in ["one", "two", "three", "four"])
    build = DocumentBuilder(lambda text: text.replace("<b>", "").replace("</b>", ""), ParseLimits())
    build.page(4)
    build.paragraph(f"{first} five {first}", [PageStart(len(first) + 1, 5), PageStart(len(first) + 6, 6)])
    build.paragraph("six")
    document = build.build()
    starts = [(document.text[start.offset :].split()[0], start.page) for start in document.pages]
    assert starts[1:] == [("five", 5), (document.text.split()[0], 6)]


def test_slides_are_pages() -> None:
    file = pptx(shape("First", placeholder="title") + shape("one"), shape("Second", placeholder="title") + shape("two"))
    pieces = list(split(parse(file, filename="a.pptx"), SplitSettings()))
    by_title = {piece.title: piece.pages for piece in pieces}
    assert sorted(pages for pages in by_title.values() if pages) == [(1, 1), (2, 2)]
    assert set(by_title) == {"First", "Second"}


@pytest.mark.parametrize("name", ["a.md", "a.txt", "a.html", "a.csv"])
def test_other_formats_have_no_pages(name: str) -> None:
    document = parse(b"# a, b\n\nc, d\n", filename=name)
    assert document.pages == ()
    assert [piece.pages for piece in split(document, SplitSettings())] == [None]


STARTS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=8, unique_by=lambda one: one[0])


@given(STARTS, st.integers(0, 60), st.integers(1, 30))
@hypothesis_settings(max_examples=200, deadline=None)
def test_the_pages_of_a_range_are_those_of_its_characters(
    starts: list[tuple[int, int]], start: int, length: int
) -> None:
    marks = [PageStart(offset, page) for offset, page in sorted(starts)]
    page_of = {
        offset: next((mark.page for mark in reversed(marks) if mark.offset <= offset), None)
        for offset in range(start, start + length)
    }
    pages = [page for page in page_of.values() if page is not None]
    assert pages_between(marks, start, start + length) == ((min(pages), max(pages)) if pages else None)


@pytest.mark.parametrize("method", get_args(SplitMethod))
async def test_pages_come_back_from_the_parser_by_any_method(method: SplitMethod) -> None:
    file = PdfFile([lines(*prose(number, 30)) for number in range(0, 60, 30)]).to_bytes()
    sizes = {"chunk_size": 300, "overlap": 50, "max_section": 600, "parent_size": 1000}
    settings = KnowledgeBaseSettings(splitting=SplitSettings.model_validate({"method": method, **sizes}))
    async with IsolatedParser() as parser:
        parsed = await parser.parse(file, filename="a.pdf", settings=settings)
    pages = [piece.pages for piece in parsed.pieces]
    assert pages[0] == (1, 1)
    assert pages[-1] == (2, 2)
    assert all(first and second and first[1] <= second[1] for first, second in pairwise(pages))
    if method == "parent_child":
        assert {piece.parent.pages for piece in parsed.pieces if piece.parent} == {(1, 1), (1, 2), (2, 2)}
        assert all(piece.parent and inside(piece.pages, piece.parent.pages) for piece in parsed.pieces)


def inside(pages: tuple[int, int] | None, around: tuple[int, int] | None) -> bool:
    return bool(pages and around and around[0] <= pages[0] and pages[1] <= around[1])
