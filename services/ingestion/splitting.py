"""From sections to pieces, by the method that is set.

`heading`: each section is a piece; what is too long is cut into windows. `recursive`: windows of the whole text. `sentence`: whole
sentences of a section. `parent_child`: small windows inside larger pieces.

1. A section of at most `max_section` characters and `max_section_tokens` tokens is one piece, and so is any of at most `chunk_size`;
   text without a heading is cut from `chunk_size` on.
2. A longer one is cut at the strongest boundary (paragraph, line, sentence, clause, word) in the second half of each window of
   `chunk_size` characters.
3. A table or code block within the limits of a section is kept whole, together with the text before it where that is short and both
   fit. A longer one is cut at its line ends, and what begins in the middle of a table repeats the table's header.
4. Neighbours share the last `overlap` characters of the first, and up to half as many more where that reaches a boundary. Nothing is
   repeated across the edge of a table or code block or across a run of white space.

Without the repetitions the pieces hold all text of the sections, in order. Each step moves on by an eighth of `chunk_size` at least
(blocks aside, which are never repeated), so that the time is linear in the text.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Final

from services.ingestion.pages import pages_between
from services.ingestion.sections import ParsedDocument, Piece, Section, trim
from services.ingestion.sentences import packed_sentences
from services.ingestion.windows import Limits, Range, Windows
from shared.contracts.knowledge_settings import SplitSettings

_NO_LIMIT: Final = 10**9


def split(document: ParsedDocument, settings: SplitSettings) -> Iterator[Piece]:
    """Yield the document's pieces in order. None is empty, and none ends in white space."""
    windows = Windows(document.text, document.blocks, _limits(settings))
    match settings.method:
        case "heading":
            return _numbered(document, windows, _by_heading(document, windows))
        case "recursive":
            return _numbered(document, windows, _recursive(document, windows))
        case "sentence":
            return _numbered(document, windows, _by_sentence(document, windows))
        case "parent_child":
            return _children(document, windows, settings.parent_size)


_Named = tuple[Section, Range]


def _by_heading(document: ParsedDocument, windows: Windows) -> Iterator[_Named]:
    for section in document.sections:
        start, end = section.start, section.end
        is_whole = windows.fits(start, end) if section.level else end - start <= windows.limits.size
        for extent in [(start, end)] if is_whole else windows.ranges(start, end):
            yield section, extent


def _recursive(document: ParsedDocument, windows: Windows) -> Iterator[_Named]:
    """Take the text, headings included, for one section; a piece is named after the section that it begins in."""
    for extent in windows.ranges(*trim(document.text, document.body_start, len(document.text))):
        yield _section_at(document.sections, extent[0]), extent


def _by_sentence(document: ParsedDocument, windows: Windows) -> Iterator[_Named]:
    for section in document.sections:
        for extent in packed_sentences(windows, section.start, section.end):
            yield section, extent


def _children(document: ParsedDocument, windows: Windows, parent_size: int) -> Iterator[Piece]:
    larger = Windows(document.text, document.blocks, Limits(parent_size, 0, parent_size, _NO_LIMIT))
    ordinals = count()
    for parent in _numbered(document, larger, _by_heading(document, larger)):
        for extent in windows.ranges(parent.start, parent.end):
            yield replace(_piece(document, windows, next(ordinals), parent, extent), parent=parent)


def _numbered(document: ParsedDocument, windows: Windows, named: Iterator[_Named]) -> Iterator[Piece]:
    for ordinal, (section, extent) in enumerate(named):
        yield _piece(document, windows, ordinal, section, extent)


def _piece(document: ParsedDocument, windows: Windows, ordinal: int, named: Section | Piece, extent: Range) -> Piece:
    start, end = extent
    header = windows.header(start)
    content = header + windows.text[start:end]
    pages = pages_between(document.pages, start, end)
    return Piece(ordinal, named.title, named.heading_path, content, start, end, len(header), pages=pages)


def _limits(settings: SplitSettings) -> Limits:
    return Limits(settings.chunk_size, settings.overlap, settings.section_limit, settings.max_section_tokens)


def _section_at(sections: Sequence[Section], offset: int) -> Section:
    """Return the section that holds the offset or, where that is on a heading's line, the first one below."""
    index = bisect_right(sections, offset, key=lambda section: section.end)
    return sections[min(index, len(sections) - 1)]
