"""Sections and pieces: what a parser finds in a document, and what a search can find of it.

All offsets are character offsets into the normalised (decoded, and cleaned where that is on) text of the document;
`content` equals `text[start:end]`, save for the repeated header of a table that was cut.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from services.ingestion.numbering import strip_numbering
from services.ingestion.pages import PageRange, PageStart


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading that opens a section. `start:end` are its source lines, without the last line's end."""

    level: int
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Block:
    """Text that should not be cut: a table, a code block, a block of HTML."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Section:
    """The text under one heading up to the next heading, whatever that one's level.

    `title` is the heading without its numbering, `heading_path` the headings above it and itself, as written. Text that
    stands under no heading has level 0 and the document's title, which may be empty. The heading's own line is not part
    of the content, except where nothing else would hold it: see `build_sections`.
    """

    title: str
    heading_path: tuple[str, ...]
    level: int
    content: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk before it has an id: a section or a part of one. `ordinal` counts from 0 in the document.

    The first `header_chars` characters of the content repeat the header of the table that the piece begins in the middle of;
    what follows them is `text[start:end]`. `parent` is the larger piece around it (parents have their own ordinals), of which at least
    one piece is a part. `pages` are where the range stands in a document that has pages.
    """

    ordinal: int
    title: str
    heading_path: tuple[str, ...]
    content: str
    start: int
    end: int
    header_chars: int = 0
    parent: "Piece | None" = None
    pages: PageRange | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """What a document's owner should know of how it was read: "page 2 has no text"."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """A document's text, its sections in order, the blocks of it that should stay whole (sorted, disjoint), and where its pages begin.

    Before `body_start` stands the front matter that a Markdown file may begin with: metadata, of no section.
    """

    text: str
    sections: tuple[Section, ...]
    blocks: tuple[Block, ...] = ()
    body_start: int = 0
    pages: tuple[PageStart, ...] = ()
    notes: tuple[Note, ...] = ()
    media_type: str = ""  # found by the file's content


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """What parsing makes of a file: its pieces, what its owner should know of how it was read, and what it turned out to be."""

    pieces: list[Piece]
    warnings: tuple[Note, ...] = ()
    media_type: str = ""


def trim(text: str, start: int, end: int) -> tuple[int, int]:
    """Move both offsets inwards past white space, keeping the first line's indentation; (end, end) if all is white."""
    content = text[start:end]
    end = start + len(content.rstrip())
    first = end - len(text[start:end].lstrip())
    line = text.rfind("\n", start, first)
    return (start if line < 0 else line + 1, end) if first < end else (end, end)


def build_sections(
    text: str, headings: Sequence[Heading], *, body_start: int = 0, document_title: str = ""
) -> Iterator[Section]:
    """Cut the text at its headings.

    A heading without text of its own opens no section if a deeper one follows, because it lives on in the paths of
    those below it; otherwise its section's content is the heading's own line, so that no text is lost.
    `document_title` stands for a missing level-1 heading at the top of every path.
    """
    path: list[Heading] = []
    root = (document_title,) if document_title and all(heading.level > 1 for heading in headings) else ()
    start, end = trim(text, body_start, headings[0].start if headings else len(text))
    if start < end:
        yield Section(document_title, root, 0, text[start:end], start, end)
    for index, heading in enumerate(headings):
        following = headings[index + 1] if index + 1 < len(headings) else None
        while path and path[-1].level >= heading.level:
            path.pop()
        path.append(heading)
        start, end = trim(text, heading.end, following.start if following else len(text))
        if start == end:
            if following and following.level > heading.level:
                continue
            start, end = trim(text, heading.start, heading.end)
        names = root + tuple(step.text for step in path if step.text)
        yield Section(strip_numbering(heading.text), names, heading.level, text[start:end], start, end)
