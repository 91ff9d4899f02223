"""Which lines are headings: those that the outline names, else those set in larger type."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, takewhile
from typing import Final

import pypdfium2 as pdfium

from services.ingestion.parsing.pdf.segments import Line

Place = tuple[int, int]  # page, line

_MAX_BOOKMARKS: Final = 20_000
_MAX_LINES: Final = 3  # of a heading
_MAX_CHARS: Final = 120
_MAX_LEVELS: Final = 4
_BODY_SHARE: Final = 0.5  # of the text is set in one size, else larger type says nothing
_LARGER: Final = 1.15
_MAX_HEADING_SHARE: Final = 0.2  # of the lines
_SAME_SIZE: Final = 0.03
_NOT_WORDS: Final = re.compile(r"[\W_]+")
_NUMBERING: Final = re.compile(
    r"^\W*(?:chapter|section|part|appendix|kapitel|teil)?\s*(?:\d+|[A-Z]|[IVX]+)(?:\.\d+)*(?:[\s.:)、]+|$)",
    re.IGNORECASE,
)
_SENTENCE_END: Final = tuple(".,;:。，；：…")


@dataclass(frozen=True, slots=True)
class Bookmark:
    """An entry of the outline. Level 1 is the highest; `page` is an index."""

    level: int
    title: str
    page: int


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading that takes `lines` lines."""

    level: int
    text: str
    lines: int


def read_outline(document: pdfium.PdfDocument) -> list[Bookmark]:
    """Return the bookmarks that lead to a page. An outline that runs in circles ends where it would begin again."""
    found = []
    for bookmark in islice(document.get_toc(), _MAX_BOOKMARKS):
        target = bookmark.get_dest()
        page = target.get_index() if target else None
        title = " ".join(bookmark.get_title().split())
        if page is not None and title:
            found.append(Bookmark(bookmark.level + 1, title, page))
    return found


def find_headings(pages: Sequence[Sequence[Line]], outline: Sequence[Bookmark]) -> Mapping[Place, Heading]:
    """Return the headings by where they begin. The title of a document with an outline stands in it nowhere."""
    named, larger = dict(_named(pages, outline)), dict(_larger(pages))
    if not named:
        return _with_text_below(larger, pages)
    front = [place for place in larger if place[0] == 0 and place < min(named)]
    if not front:
        return named
    title = min(front, key=lambda place: (larger[place].level, place))
    return {title: replace(larger[title], level=1), **named}


def _with_text_below(found: Mapping[Place, Heading], pages: Sequence[Sequence[Line]]) -> Mapping[Place, Heading]:
    """Return the headings without those that a higher one follows at once: names and dates under a title."""
    after = {place: _next_place(place, heading.lines, pages) for place, heading in found.items()}
    return {
        place: heading
        for place, heading in found.items()
        if after[place] not in found or found[after[place]].level > heading.level
    }


def _next_place(place: Place, lines: int, pages: Sequence[Sequence[Line]]) -> Place:
    number, index = place[0], place[1] + lines
    while number < len(pages) and index >= len(pages[number]):
        number, index = number + 1, 0
    return number, index


def _named(pages: Sequence[Sequence[Line]], outline: Sequence[Bookmark]) -> Iterator[tuple[Place, Heading]]:
    """Yield the lines that say what a bookmark to their page says."""
    taken: set[Place] = set()
    keys: dict[int, list[str]] = {}
    for bookmark in outline:
        if not 0 <= bookmark.page < len(pages):
            continue
        lines = pages[bookmark.page]
        page_keys = keys.setdefault(bookmark.page, [_key(line.text) for line in lines])
        wanted = {_key(bookmark.title), _key(_NUMBERING.sub("", bookmark.title))} - {""}
        found = min(_matches(page_keys, lines, wanted, bookmark.page, taken), default=None)
        if found:
            count, index = found
            taken |= {(bookmark.page, number) for number in range(index, index + count)}
            text = " ".join(line.text.strip() for line in lines[index : index + count])
            yield (bookmark.page, index), Heading(bookmark.level, " ".join(text.split()), count)


def _matches(
    keys: Sequence[str], lines: Sequence[Line], wanted: set[str], page: int, taken: set[Place]
) -> Iterator[tuple[int, int]]:
    """Yield how many lines, and from which on, say what is wanted."""
    longest = max(map(len, wanted), default=0) + 12  # a number or "Chapter 1" before it
    for index in range(len(lines)):
        for count in range(1, _MAX_LINES + 1):
            key = "".join(keys[index : index + count])
            if (page, index) in taken or not key or len(key) > longest:
                break
            text = " ".join(line.text for line in lines[index : index + count])
            if key in wanted or _key(_NUMBERING.sub("", text)) in wanted:
                yield count, index


def _key(text: str) -> str:
    return _NOT_WORDS.sub("", text).casefold()


def _larger(pages: Sequence[Sequence[Line]]) -> Iterator[tuple[Place, Heading]]:
    """Yield the short lines in larger type, if the document has one size for its text and few such lines."""
    weights: Counter[float] = Counter()
    for page in pages:
        for line in page:
            weights[_rounded(line.size)] += len(line.text)
    if not weights:
        return
    (body, chars), *_ = weights.most_common(1)
    if chars < _BODY_SHARE * weights.total():
        return
    found = [(number, index, run) for number, page in enumerate(pages) for index, run in _runs(page, _LARGER * body)]
    if sum(len(run) for _, _, run in found) > _MAX_HEADING_SHARE * sum(map(len, pages)):
        return
    sizes = sorted({_rounded(run[0].size) for _, _, run in found}, reverse=True)
    level_of = {size: min(level, _MAX_LEVELS) for level, size in enumerate(sizes, start=1)}
    for number, index, run in found:
        text = " ".join(" ".join(line.text for line in run).split())
        yield (number, index), Heading(level_of[_rounded(run[0].size)], text, len(run))


def _runs(lines: Sequence[Line], least: float) -> Iterator[tuple[int, Sequence[Line]]]:
    """Yield the runs of lines in one larger size that may be headings."""
    index = 0
    while index < len(lines):
        first = lines[index]
        if first.size < least:
            index += 1
            continue
        run = list(takewhile(partial(_continues, first), lines[index : index + 2 * _MAX_LINES]))
        text = " ".join(line.text for line in run)
        is_heading = len(run) <= _MAX_LINES and len(text) <= _MAX_CHARS and not text.rstrip().endswith(_SENTENCE_END)
        if is_heading and sum(char.isalpha() for char in text) >= 2 and not any(line.cells for line in run):
            yield index, run
        index += len(run)


def _continues(first: Line, line: Line) -> bool:
    return abs(line.size - first.size) <= _SAME_SIZE * first.size


def _rounded(size: float) -> float:
    return round(size * 2) / 2
