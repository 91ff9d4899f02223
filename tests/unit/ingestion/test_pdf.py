from contextlib import suppress
from dataclasses import replace

import pytest

from services.ingestion.parsing.builder import DocumentBuilder
from services.ingestion.parsing.limits import Corrupt, Encrypted, NoText, ParseLimits, TooManyPages
from services.ingestion.parsing.pdf import parse_pdf
from services.ingestion.sections import ParsedDocument
from services.ingestion.text import TextTooLarge
from tests.support.pdf_files import PdfFile, Text, lines

PROSE = (
    "The opening line of this column is as long as prose will be,",
    "notwithstanding that it goes on in the second, ending in a bro-",
    "ken word, so that the third will mend whatever there is torn,",
    "whereupon a self-made name keeps whatever it was given at all,",
    "notwithstanding that the last line of it comes to an end here",
)


def read(file: PdfFile | bytes, limits: ParseLimits | None = None) -> ParsedDocument:
    limits = limits or ParseLimits()
    builder = DocumentBuilder(lambda text: text, limits)
    parse_pdf(file if isinstance(file, bytes) else file.to_bytes(), builder, limits)
    return builder.build()


def page(*texts: str) -> PdfFile:
    return PdfFile([lines(*texts)])


def test_lines_become_a_paragraph() -> None:
    text = read(page(*PROSE)).text
    assert text == " ".join(PROSE).replace("bro- ken", "broken")


def test_chinese_lines_are_joined_without_a_blank() -> None:
    text = "这一行的文字一直写到这一栏的右边才停下来，" * 2
    assert read(page(text, text, "这一行很短。")).text == text + text + "这一行很短。"


def test_short_lines_keep_their_ends() -> None:
    poem = ("Beautiful is better than ugly.", "Explicit is better than implicit.", "Flat is better than nested.")
    assert read(page(*poem)).text == "\n".join(poem)


@pytest.mark.parametrize(
    ("ends", "begins", "expected"),
    [
        ("a sentence that ends with an inter-", "national word", "international word"),
        ("a sentence that names the variable x_inter-", "national word", "x_inter-national word"),
        ("a sentence that has a well-", "known word, and one that is well-known", "well-known word"),
        ("a sentence that has the range 10-", "20 in numbers", "10-20 in numbers"),
        ("a sentence that has a Jean-", "Paul in its middle", "Jean-Paul in"),
        ("an address https://example.org/a/long/", "path?x=1 follows", "https://example.org/a/long/path?x=1 follows"),
    ],
)
def test_what_a_line_end_broke_is_mended_where_it_is_safe(ends: str, begins: str, expected: str) -> None:
    filler = "x" * (75 - len(ends)) + " "
    assert expected in read(page(filler + ends, begins)).text


def test_columns_are_read_one_after_the_other() -> None:
    right = tuple(line.upper() for line in PROSE)
    both = [
        Text(60, 800, "A title over both of the columns, which are read one after the other, left before right", 12)
    ]
    # Drawn row by row, as some programs do.
    for number in range(5):
        y = 760 - 14 * number
        both += [Text(60, y, PROSE[number], 8), Text(320, y, right[number], 6)]
    text = read(PdfFile([both])).text
    order = [
        text.index(words) for words in ("A title", "The opening", "comes to an end", "THE OPENING", "COMES TO AN END")
    ]
    assert order == sorted(order)
    assert "broken word" in text


def test_a_table_is_read_by_rows() -> None:
    rows = [("Product", "Place", "Count"), ("bolts", "A-12", "450"), ("nuts", "", "289"), ("screws", "C-15", "7")]
    texts = [
        Text(72 + 120 * column, 700 - 20 * number, cell)
        for column in range(3)  # drawn column by column
        for number, row in enumerate(rows)
        if (cell := row[column])
    ]
    text = read(PdfFile([texts])).text
    assert text.splitlines()[0] == "| Product | Place | Count |"
    assert text.splitlines()[2:] == ["| bolts | A-12 | 450 |", "| nuts |  | 289 |", "| screws | C-15 | 7 |"]


def test_letters_set_apart_are_words() -> None:
    apart = [Text(72, 700, "some", 12, letter_gap=2), Text(120, 700, "spaced", 12, letter_gap=2)]
    assert read(PdfFile([apart])).text == "some spaced"


def test_letters_drawn_twice_are_read_once() -> None:
    bold = [Text(72 + shift, 700, "BOLD TEXT") for shift in (0, 0.3)]
    assert read(PdfFile([bold])).text == "BOLD TEXT"


@pytest.mark.parametrize("angle", [(0, 1), (0, -1), (-1, 0)])
def test_a_turned_page_is_read_along_its_lines(angle: tuple[float, float]) -> None:
    down = (angle[1], -angle[0])
    texts = [
        Text(300 + 14 * number * down[0], 400 + 14 * number * down[1], f"This is line {number}.", angle=angle)
        for number in range(3)
    ]
    assert read(PdfFile([texts])).text == "This is line 0.\nThis is line 1.\nThis is line 2."


def test_running_heads_and_page_numbers_go() -> None:
    pages = [
        [
            Text(72, 810, "Annual report 2024"),
            *lines(f"Words of chapter {name}, and more of them"),
            Text(290, 30, str(number)),
        ]
        for number, name in enumerate(("one", "two", "three", "four"), start=7)
    ]
    text = read(PdfFile(pages)).text
    assert "chapter one" in text
    assert "chapter four" in text
    assert "report" not in text
    assert "7" not in text
    assert "Annual report" in read(PdfFile(pages[:2])).text  # two pages prove nothing


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("Invoice number {}", "Fee: {} EUR"),
        ("Machine {}", "租期自2026年{}月1日起"),
        ("Case - 730{}", "Signed on day {} of the month"),
    ],
)
def test_a_number_that_says_more_than_the_page_stays(first: str, last: str) -> None:
    names = ("the quick fox", "a lazy dog", "some other words", "the last of them")
    pages = [
        [Text(72, 790, first.format(number)), *lines(f"About {name}.", top=700), Text(72, 60, last.format(number))]
        for number, name in enumerate(names, start=1)
    ]
    text = read(PdfFile(pages)).text
    for number in range(1, 5):
        assert first.format(number) in text
        assert last.format(number) in text


@pytest.mark.parametrize(
    "foot", ["Page {} of 4", "- {} -", "第 {} 页 共 4 页", "Kestrel manual \u2013 {}", "{} | Annual report", "ii {} ii"]
)
def test_a_number_that_counts_the_pages_goes(foot: str) -> None:
    names = ("the quick fox", "a lazy dog", "some other words", "the last of them")
    pages = [
        [*lines(f"About {name}.", f"More about {name}.", top=700), Text(200, 40, foot.format(number))]
        for number, name in enumerate(names, start=1)
    ]
    text = read(PdfFile(pages)).text
    assert (foot.format(2) in text) == (foot == "ii {} ii")


def test_pages_that_end_alike_keep_their_last_line() -> None:
    pages = [
        lines(f"This page is about {name}.", "The next words are there", "to fill the page.", top=700)
        for name in ("one thing", "another", "a third", "the last of all")
    ]
    assert read(PdfFile(pages)).text.count("to fill the page.") == 4


def test_rows_that_resemble_each_other_stay() -> None:
    pages = [
        [*lines(f"order {37 * number}", f"total {91 * number} pieces"), Text(72, 500, f"Some words about {name}.")]
        for number, name in enumerate(("one", "two", "three", "four", "five"), start=1)
    ]
    text = read(PdfFile(pages)).text
    assert all(f"order {37 * number}" in text and f"total {91 * number} pieces" in text for number in range(1, 6))


def test_what_is_nearly_all_of_the_text_is_no_running_head() -> None:
    text = read(PdfFile([[Text(72, 700, f"page {number} of 4")] for number in range(1, 5)])).text
    assert text.count("of 4") == 4


def test_the_outline_names_the_headings() -> None:
    file = PdfFile(
        [lines("1 Rules", "Text of rules.", "1.1 Scope", "Text of scope."), lines("2 Procedure", "Text of procedure.")],
        outline=[(1, "Rules", 0), (2, "1.1 Scope", 0), (1, "2 Procedure", 1), (2, "Nowhere", 1)],
    )
    assert [(section.heading_path, section.content) for section in read(file).sections] == [
        (("1 Rules",), "Text of rules."),
        (("1 Rules", "1.1 Scope"), "Text of scope."),
        (("2 Procedure",), "Text of procedure."),
    ]


def test_larger_type_makes_headings_without_an_outline() -> None:
    body = lines(
        *(f"This is a line of the text that is set in the usual size, {number}." for number in range(12)), top=700
    )
    file = PdfFile([[Text(72, 780, "The Title", 24), Text(72, 730, "First Chapter", 16), *body]])
    assert [section.heading_path for section in read(file).sections] == [("The Title", "First Chapter")]


def test_pages_without_text_are_named() -> None:
    document = read(PdfFile([lines("text"), [], lines("more"), []]))
    assert [(note.code, note.message) for note in document.notes] == [
        ("page_without_text", "pages 2, 4 without text: pictures or blank")
    ]


def test_a_file_without_text_is_refused() -> None:
    with pytest.raises(NoText):
        read(PdfFile([[], []]))


def test_what_needs_a_password_is_refused() -> None:
    locked = b" /ID [<00> <00>] /Encrypt << /Filter /Standard /V 1 /R 2 /Length 40 /P -4 /O <%b> /U <%b> >>" % (
        b"11" * 32,
        b"22" * 32,
    )
    with pytest.raises(Encrypted):
        read(replace(page("secret"), encryption=locked))


def test_damaged_files_are_read_or_refused() -> None:
    data = page("some text").to_bytes()
    assert "some text" in read(data.replace(b"startxref", b"startxxxx")).text
    for cut in range(0, len(data), 97):
        with suppress(Corrupt, NoText):
            assert "some text" in read(data[:cut]).text


def test_limits_of_pages_and_characters() -> None:
    with pytest.raises(TooManyPages):
        read(PdfFile([lines("text")] * 4), ParseLimits(max_pages=3))
    with pytest.raises(TextTooLarge):
        read(PdfFile([lines("text " * 10)] * 4), ParseLimits(max_chars=100))
