"""Running heads and feet: what stands at the same place on page after page.

Such a line stands apart from the text. A number that counts the pages is left out of the comparison if nothing else can be meant by it: it
stands alone, with words such as "page", or set off by a mark. Any other number is compared: the rows of a table that goes on for
pages resemble each other too, and "Invoice number 1001" is what its page is about. Nothing is taken from a document of less than
three pages, and nothing at all where it would be much of the text.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import Final

from services.ingestion.parsing.pdf.layout import Row, rows_of
from services.ingestion.parsing.pdf.segments import Page, Segment

Key = tuple[str, int, int]  # text, which of two grids, place in it

_LEAST_PAGES: Final = 3
_ENOUGH: Final = 0.4  # of the pages have it: left and right pages take turns
_MOST: Final = 0.6
_MUCH: Final = 0.4  # of the text is never a running line
_EDGE_ROWS: Final = 3  # at the top and at the bottom that may be running
_APART: Final = 1.5  # times the usual distance between lines
_NUMBER = re.compile(r"\d+")
_PAGE_WORDS: Final = frozenset(
    ("p", "pp", "pg", "page", "pages", "of", "seite", "von", "página", "pagina", "de", "di", "стр", "страница", "из")
)
_PAGE_CHARACTERS: Final = frozenset("第页頁共")
_SET_OFF = re.compile(
    r"(?:^|.*\s)[-\u2013\u2014|\u00b7\u2022/]\s*#|#\s*[-\u2013\u2014|\u00b7\u2022/](?:\s.*|$)", re.DOTALL
)
_FRONT_MATTER: Final = 50  # pages that a page's number may be off by where other words stand with it
_ROMAN = re.compile(r"[ivxlc]+")
_STAMP: Final = 0.9  # of the pages have it, wherever it stands
_LITTLE: Final = 0.05  # of the text is stamps; more is a form
_GRID: Final = 6.0  # points


def without_running_lines(pages: Sequence[Page]) -> list[list[Segment]]:
    """Return the segments of each page without those that run through the document."""
    rows = [rows_of(page.segments) for page in pages]
    running = _running(rows) if len(pages) >= _LEAST_PAGES else set()
    kept = [
        [segment for number, row in enumerate(page) if (index, number) not in running for segment in row]
        for index, page in enumerate(rows)
    ]
    kept = _without_stamps(kept) if len(pages) > _LEAST_PAGES else kept
    before = sum(len(segment.text) for page in pages for segment in page.segments)
    if sum(len(segment.text) for page in kept for segment in page) < (1 - _MUCH) * before:
        return [list(page.segments) for page in pages]
    return [after or list(page.segments) for page, after in zip(pages, kept, strict=True)]


def _without_stamps(pages: Sequence[list[Segment]]) -> list[list[Segment]]:
    """Return the segments without those that are the same on nearly all pages, such as the buttons of a printed web page."""
    stamps = [{(segment.text, round(segment.left), round(segment.bottom)) for segment in page} for page in pages]
    count = Counter(stamp for page in stamps for stamp in page)
    common = {stamp for stamp, number in count.items() if number >= _STAMP * len(pages)}
    if not common:
        return list(pages)
    kept = [
        [segment for segment in page if (segment.text, round(segment.left), round(segment.bottom)) not in common]
        for page in pages
    ]
    chars = sum(len(segment.text) for page in pages for segment in page)
    left = sum(len(segment.text) for page in kept for segment in page)
    return kept if left >= (1 - _LITTLE) * chars else list(pages)


def _running(pages: Sequence[Sequence[Row]]) -> set[tuple[int, int]]:
    """Return (page, row) of what is running."""
    usual = _usual_distance(pages)
    edges = [(index, number) for index, rows in enumerate(pages) for number in sorted(_edge_rows(rows, usual))]
    offset = _page_number_offset(pages, edges)
    keys = {(index, number): _keys(pages[index][number], index, offset) for index, number in edges}
    count = Counter(key for found in keys.values() for key in found)
    enough = max(_LEAST_PAGES, _ENOUGH * len(pages))
    running = {place for place, found in keys.items() if any(count[key] >= enough for key in found)}
    for outermost in (0, -1):
        running |= _by_section(pages, keys, outermost)
    return running


def _usual_distance(pages: Sequence[Sequence[Row]]) -> float:
    distances = [_distance(*pair) for rows in pages for pair in pairwise(rows)]
    return median(distances) if distances else 0.0


def _edge_rows(rows: Sequence[Row], usual: float) -> set[int]:
    """Return the rows at the top and at the bottom of a page that stand apart from its text; all of them where there are few."""
    last = len(rows) - 1
    apart = [number for number, pair in enumerate(pairwise(rows)) if _distance(*pair) > _APART * usual]
    head = max((number for number in apart if number < _EDGE_ROWS), default=-1)
    foot = min((number for number in apart if number >= last - _EDGE_ROWS), default=last)
    return {*range(head + 1), *range(foot + 1, last + 1), *((0,) if last == 0 else ())}


def _distance(row: Row, below: Row) -> float:
    return min(segment.bottom for segment in row) - min(segment.bottom for segment in below)


def _page_number_offset(pages: Sequence[Sequence[Row]], edges: Sequence[tuple[int, int]]) -> int | None:
    """Return what the printed page numbers are ahead of the pages' indices, if most pages agree."""
    offsets: Counter[int] = Counter()
    at_edge: dict[int, list[int]] = {index: [] for index in range(len(pages))}
    for index, number in edges:
        at_edge[index].append(number)
    for index, rows in enumerate(pages):
        numbers = {
            int(found[0]) - index
            for number in at_edge[index]
            for found in _NUMBER.finditer(_text(rows[number]))
            if len(found[0]) <= 6
        }
        offsets.update(numbers)
    if not edges or not offsets:
        return None
    (offset, pages_with), *_ = offsets.most_common(1)
    return offset if pages_with >= max(_LEAST_PAGES, _MOST * len(pages)) else None


def _keys(row: Row, index: int, offset: int | None) -> set[Key]:
    """Return what the row may be recognised by: its text, with and without the page's number, on two grids."""
    text, bottom = _text(row), min(segment.bottom for segment in row)
    texts = {text}
    if offset is not None:
        texts.update(rest for rest in _without_number(text, str(index + offset)) if _counts_pages(row, rest, offset))
    if _ROMAN.fullmatch(text):
        texts.add("#")
    places = ((0, round(bottom / _GRID)), (1, round(bottom / _GRID + 0.5)))
    return {(variant, grid, place) for variant in texts for grid, place in places}


def _counts_pages(row: Row, rest: str, offset: int) -> bool:
    """Whether the number that was left out of a row ("#" stands for it) can't mean anything else than the page."""
    words = re.findall(r"[^\W\d_]+", rest)
    if all(word.lower() in _PAGE_WORDS or _PAGE_CHARACTERS.issuperset(word) for word in words):
        return True
    is_alone = any(segment.text.strip().isdigit() for segment in row)
    return abs(offset) <= _FRONT_MATTER and (is_alone or bool(_SET_OFF.fullmatch(rest)))


def _without_number(text: str, number: str) -> Iterator[str]:
    """Yield the text without the number where it first, last, and ever occurs."""
    found = [match for match in _NUMBER.finditer(text) if match[0].lstrip("0") == number]
    for match in found[:1] + found[1:][-1:]:
        yield f"{text[: match.start()]}#{text[match.end() :]}"
    if len(found) > 1:
        yield _NUMBER.sub(lambda match: "#" if match[0].lstrip("0") == number else match[0], text)


def _text(row: Row) -> str:
    return " ".join(segment.text.strip() for segment in row)


def _by_section(
    pages: Sequence[Sequence[Row]], keys: dict[tuple[int, int], set[Key]], outermost: int
) -> set[tuple[int, int]]:
    """Return the heads that name the section, and so change with it: most equal those of the pages around them."""
    places = {
        index: place
        for index, rows in enumerate(pages)
        if len(rows) > 1 and (place := (index, outermost % len(rows))) in keys
    }
    repeated = {
        place
        for index, place in places.items()
        if any(
            near in places and keys[place] & keys[places[near]] for near in (index - 2, index - 1, index + 1, index + 2)
        )
    }
    if len(repeated) < max(_LEAST_PAGES, _MOST * len(places)):
        return set()
    return repeated
