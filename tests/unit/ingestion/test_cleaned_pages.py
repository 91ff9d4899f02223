"""Pages begin in the cleaned text where they do in the file, whatever was cleaned away at their turns, however many there are."""

import re
from bisect import bisect_right
from functools import partial
from itertools import accumulate
from time import process_time

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from services.ingestion.cleaning import RULES, clean
from services.ingestion.pages import PageStart
from services.ingestion.parsing.builder import DocumentBuilder
from services.ingestion.parsing.limits import ParseLimits
from services.ingestion.sections import ParsedDocument
from services.ingestion.splitting import split
from shared.contracts.knowledge_settings import Cleaning, CustomCleaning, SplitSettings

NOISE = [
    "<!-- a remark of many words -->", "<b>", "</td>", '<td class="x" nowrap>', "&nbsp;", "\n第 3 页 共 9 页\n", "\n== Page 12 ==\n",
    "(wiki/x)",
    "[[file:a plan.png]]", "[[target|", "]]", "[a link](/wiki/of_it)", "![a picture](a.png)", "%E5%88%9A", "  \n\n\n\n", " \n", "\t ", " ",
    "[the words](/docs/a \"a title\")", "https://example.org/some/%E5%88%9A?a=b#c", " www.example.org ", "li.lei@mail.example.org", "\n7\n",
    "\n- 8 -\n", "\n9 / 30\n", "ware-\n  house", "-\n", "\u00ad\n", "soft\u00adware", "\u200b", "\u00a0", "```\n", "`", "e\u0301", "\u0301",
    ".", "12.50",
]  # fmt: skip
_DIGITS = "ghijklmnoprstuvw"  # none of them is a hexadecimal digit
_WORD = re.compile(f"q[{_DIGITS}]{{5}}")
CLEANING: st.SearchStrategy[Cleaning] = st.one_of(
    st.just("wiki"),
    st.lists(st.sampled_from(list(RULES)), min_size=1, max_size=6).map(
        lambda rules: CustomCleaning(rules=tuple(rules))
    ),
)
# Of each page: the noise it begins with, how far into that the page turns, and the noise it ends with.
PAGES = st.lists(
    st.tuples(
        st.lists(st.sampled_from(NOISE), max_size=3).map("".join),
        st.integers(0, 12),
        st.lists(st.sampled_from(NOISE), max_size=2).map("".join),
    ),
    min_size=2,
    max_size=12,
)


def word(number: int) -> str:
    """A word like no other, which can be told from what it is joined to."""
    return "q" + "".join(_DIGITS[number >> shift & 15] for shift in (16, 12, 8, 4, 0))


def words(first: int, count: int) -> str:
    return " ".join(map(word, range(first, first + count)))


def read(pages: list[str], cleaning: Cleaning) -> ParsedDocument:
    """The pages as one paragraph."""
    build = DocumentBuilder(partial(clean, cleaning=cleaning), ParseLimits())
    build.page(1)
    ends = accumulate(map(len, pages))
    build.paragraph("".join(pages), [PageStart(end, number) for number, end in enumerate(ends, 2)][:-1])
    return build.build()


def misplaced(document: ParsedDocument, pages: list[str]) -> list[tuple[str, int, int]]:
    """The words that are said to be on another page: the word, the page it is on, the page that is said."""
    page_of = {found: number for number, page in enumerate(pages, 1) for found in _WORD.findall(page)}
    offsets = [start.offset for start in document.pages]
    assert offsets == sorted(offsets)
    places = [
        (found[0], document.pages[bisect_right(offsets, at) - 1].page or 0)
        for found in _WORD.finditer(document.text)
        for at in (found.start(), found.end() - 1)
    ]
    return [(found, page_of[found], said) for found, said in places if found in page_of and page_of[found] != said]


@given(PAGES, CLEANING)
@hypothesis_settings(max_examples=300, deadline=None)
def test_every_word_is_on_its_page(parts: list[tuple[str, int, str]], cleaning: Cleaning) -> None:
    # The tolerance: what is left of noise that stands at a turn or across it may be on either page, since cleaning looks at both sides
    # of it at once. Words never may, as each page has some between blanks.
    pages: list[str] = []
    for number, (before, turn, after) in enumerate(parts):
        if pages:
            pages[-1] += before[:turn]
        pages.append(f"{before[turn:] if pages else before} {words(20 * number, 12)} {after}")
    document = read(pages, cleaning)
    assert misplaced(document, pages) == []


@pytest.mark.parametrize(
    "cleaning", ["wiki", CustomCleaning(rules=("blank_runs",)), CustomCleaning(rules=tuple(RULES))]
)
def test_chunks_of_a_paragraph_over_200_pages_are_on_their_pages(cleaning: Cleaning) -> None:
    noise = "[[target|of]] the <b>bold</b> and [see](/wiki/it) a%E5%88%9Ab, https://example.org/x "
    pages = [f"{words(100 * page, 60)} {noise if page % 3 else ''}{words(100 * page + 60, 40)} " for page in range(200)]
    document = read(pages, cleaning)
    page_of = {found: number for number, page in enumerate(pages, 1) for found in _WORD.findall(page)}
    assert misplaced(document, pages) == []
    pieces = list(split(document, SplitSettings()))
    assert len(pieces) > 250
    for piece in pieces:
        held = [page_of[found] for found in _WORD.findall(piece.content)]
        assert piece.pages == (held[0], held[-1])


@pytest.mark.parametrize("cleaning", ["wiki", CustomCleaning(rules=tuple(RULES))])
def test_chinese_pages_begin_where_they_do(cleaning: Cleaning) -> None:
    pages = [f"<b>第</b>{chr(0x4E10 + page)}页的文字从这里开始，[[目标|一直]]到这里结束。" for page in range(300)]
    document = read(pages, cleaning)
    assert [document.text[start.offset] for start in document.pages[1:]] == ["第"] * 299
    assert [document.text[start.offset + 1] for start in document.pages[1:]] == [
        chr(0x4E10 + page) for page in range(1, 300)
    ]


def test_pages_of_numbers_only_begin_where_they_do() -> None:
    pages = [f"{page:06} <b>{page}.50</b> {page}/12 " for page in range(1, 301)]
    document = read(pages, "wiki")
    wrong = [
        start for start in document.pages if not document.text[start.offset :].lstrip().startswith(f"{start.page:06}")
    ]
    assert wrong == []


@pytest.mark.parametrize("rule", RULES)
def test_what_is_between_a_page_of_noise_and_the_next_moves_no_other_page(rule: str) -> None:
    noise = {number: f"<!-- {number} {NOISE[number % len(NOISE)]} " for number in range(0, 200, 7)}
    pages = [noise.get(number, "") + words(20 * number, 12) + " " for number in range(200)]
    assert misplaced(read(pages, CustomCleaning.model_validate({"rules": [rule]})), pages) == []


@pytest.mark.parametrize("pages", [250, 1000])
def test_many_turns_cost_hardly_more_than_linear_time(pages: int) -> None:
    texts = [
        f"{words(100 * page, 60)} <b>x</b> <!-- {words(100 * page, 5)} --> {words(100 * page + 60, 40)} "
        for page in range(pages)
    ]
    began = process_time()
    assert len(read(texts, "wiki").pages) == pages
    assert process_time() - began < 0.006 * pages
