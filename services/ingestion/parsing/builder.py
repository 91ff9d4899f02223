"""Where the parsers of all formats but Markdown and plain text put what they read, piece by piece."""

from bisect import bisect_left
from collections.abc import Callable, Sequence

from services.ingestion.pages import PageStart
from services.ingestion.parsing.limits import ParseLimits, TooManyHeadings
from services.ingestion.sections import Block, Heading, Note, ParsedDocument, build_sections
from services.ingestion.text import TextTooLarge, normalise

# Nobody meant a heading as long as this, whatever the file says of its style: it stays text.
_MAX_HEADING_CHARS = 300
_MAX_NOTES = 100
_BULLET = "- "


class DocumentBuilder:
    """Joins paragraphs, tables and code to one text, and notes where its headings and blocks are.

    `clean` is applied to each paragraph, heading and cell, never to code. Headings deeper than `heading_levels` are
    text that opens no section. A table becomes a Markdown pipe table, whose header splitting repeats where it cuts it.

    Each piece is taken in time linear in its length. Everything raises TextTooLarge as soon as the text grows too long.
    """

    def __init__(self, clean: Callable[[str], str], limits: ParseLimits, heading_levels: int = 6) -> None:
        self._clean = clean
        self._limits = limits
        self._heading_levels = heading_levels
        self._parts: list[str] = []
        self._length = 0
        self._in_list = False
        self._headings: list[Heading] = []
        self._blocks: list[Block] = []
        self._notes: list[Note] = []
        self._page: int | None = None
        self._pages: list[PageStart] = []

    def page(self, number: int | None) -> None:
        """Say which page, counting from 1, all that follows is on; None: on none in particular."""
        self._page = number

    def heading(self, level: int, text: str) -> None:
        """Add a heading: 1 is the highest level, 0 a document's title, which stands above all. Raises TooManyHeadings."""
        words = " ".join(self._cleaned(text).split())
        if level > self._heading_levels or len(words) > _MAX_HEADING_CHARS:
            self._add(words)
        elif words:
            if len(self._headings) >= self._limits.max_headings:
                raise TooManyHeadings(f"the document has more than {self._limits.max_headings} headings")
            self._headings.append(Heading(max(level, 0), words, *self._add(words)))

    def paragraph(self, text: str, turns: Sequence[PageStart] = ()) -> None:
        """Add a paragraph; its line ends are kept. `turns`: where in it the next page begins, and the one behind that."""
        offset, end = self._add(self._cleaned(text).strip())
        before = 0
        for turn in turns:
            # What cleaning takes away before a turn moves it; a word that is cleaned away across it is nobody's.
            offset = min(offset + len(self._clean(normalise(text[before : turn.offset]))), end)
            before = turn.offset
            self._page = turn.page
            self._turn_page(offset)

    def item(self, text: str, depth: int = 0, marker: str = _BULLET) -> None:
        """Add an item of a list, under the item before it without an empty line between; depth 0 is the outermost."""
        words = self._cleaned(text).strip()
        if words:
            indent = "  " * min(depth, 8)
            self._add(indent + marker + words.replace("\n", f"\n{indent}  "), in_list=True)

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        """Add a table, whose first row is its header. Cells without text fill nothing up; rows may differ in length.

        What has a single column is no table but lines, as in a page that is laid out by tables.
        """
        cells = self._without_blanks(rows)
        columns = max(map(len, cells), default=0)
        if columns < 2:
            self._add("\n\n".join(row[0] for row in cells))
            return
        header, *body = cells
        head = f"{_pipe_row(_padded(header, columns))}\n|{' --- |' * columns}"
        self._block("\n".join([head, *map(_pipe_row, body)]))

    def code(self, text: str) -> None:
        """Add code or other text whose lines and indentation mean something. It isn't cleaned."""
        self._reserve(text)
        self._block(normalise(text).strip("\n").rstrip())

    def note(self, code: str, message: str) -> None:
        """Say something about the document to its owner; the first 100 notes are kept."""
        if len(self._notes) < _MAX_NOTES:
            self._notes.append(Note(code, message))

    def build(self, document_title: str = "") -> ParsedDocument:
        """Return the document. The title stands for a missing level-1 heading; without text there are no sections."""
        text = "".join(self._parts)
        title = " ".join(normalise(document_title).split())[:_MAX_HEADING_CHARS]
        sections = build_sections(text, self._headings, document_title=title)
        return ParsedDocument(
            text, tuple(sections), tuple(self._blocks), pages=tuple(self._pages), notes=tuple(self._notes)
        )

    def _cleaned(self, text: str) -> str:
        self._reserve(text)
        text = normalise(text)
        cleaned = self._clean(text)
        return text if cleaned == text else normalise(cleaned)

    def _reserve(self, text: str) -> None:
        if self._length + len(text) > self._limits.max_chars:
            raise TextTooLarge(f"the text has more than {self._limits.max_chars} characters")

    def _add(self, text: str, *, in_list: bool = False) -> tuple[int, int]:
        """Append a piece that isn't blank, an empty line before it; return its range."""
        if not text:
            return self._length, self._length
        self._reserve(text)
        separator = "" if not self._parts else "\n" if in_list and self._in_list else "\n\n"
        self._in_list = in_list
        self._parts += (separator, text)
        start = self._length + len(separator)
        self._length = start + len(text)
        self._turn_page(start)
        return start, self._length

    def _turn_page(self, offset: int) -> None:
        if self._page != (self._pages[-1].page if self._pages else None):
            self._pages.append(PageStart(offset, self._page))

    def _block(self, text: str) -> None:
        start, end = self._add(text)
        if start < end:
            self._blocks.append(Block(start, end))

    def _without_blanks(self, rows: Sequence[Sequence[str]]) -> list[list[str]]:
        """Return the rows that hold text, without the columns that hold none anywhere and blank cells at the end."""
        cleaned = [[self._cell(cell) if cell else "" for cell in row] for row in rows]
        used = sorted({column for row in cleaned for column, cell in enumerate(row) if cell})
        kept = [[row[column] for column in used[: bisect_left(used, len(row))]] for row in cleaned]
        return [row[: last + 1] for row in kept if (last := _last_filled(row)) >= 0]

    def _cell(self, text: str) -> str:
        return " ".join(self._cleaned(text).split())


def _last_filled(row: Sequence[str]) -> int:
    return next((index for index in range(len(row) - 1, -1, -1) if row[index]), -1)


def _padded(row: list[str], columns: int) -> list[str]:
    return row + [""] * (columns - len(row))


def _pipe_row(row: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
