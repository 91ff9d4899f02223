"""Where the parsers of all formats but Markdown and plain text put what they read, piece by piece."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, takewhile
from typing import Final

from services.ingestion.pages import PageStart
from services.ingestion.parsing.limits import ParseLimits, TooManyHeadings
from services.ingestion.sections import Block, Heading, Note, ParsedDocument, build_sections
from services.ingestion.text import TextTooLarge, normalise

# Nobody meant a heading as long as this, whatever the file says of its style: it stays text.
_MAX_HEADING_CHARS = 300
_MAX_NOTES = 100
_BULLET = "- "
# Letters that no rule of cleaning tells from others of their kind: of a Latin word between blanks, and of scripts that are in no rule.
_PROBE: Final = re.compile(
    r"(?<=[\w,;.] )(?!page\b)[a-z](?=[a-z]{2,}[,.;]?\s)"
    r"|(?![第页共文件檔案图像圖像])[\u0370-\u0481\u048a-\u052f\u3041-\u3096\u30a1-\u30fa\u3400-\u9fff]"
    r"(?=[\u0370-\u0481\u048a-\u052f\u3041-\u3096\u30a1-\u30fa\u3400-\u9fff])",
    re.IGNORECASE | re.ASCII,
)
_COMPARED_CHARS: Final = 256


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
        words = self._clean_words(text)
        starts = _starts(text, words, [turn.offset for turn in turns], self._clean_words)
        offset, _ = self._add(words)
        for turn, start in zip(turns, starts, strict=True):
            self._page = turn.page
            self._turn_page(offset + start)

    def item(self, text: str, depth: int = 0, marker: str = _BULLET) -> None:
        """Add an item of a list, under the item before it without an empty line between; depth 0 is the outermost."""
        words = self._clean_words(text)
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

    def _clean_words(self, text: str) -> str:
        return self._cleaned(text).strip()

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


def _starts(text: str, cleaned: str, turns: Sequence[int], clean: Callable[[str], str]) -> list[int]:
    """Return where in the cleaned text the pages begin that begin at `turns` in the text, whatever cleaning took away.

    A page whose words are found begins behind the last word before it, and at its first. One without such words, say of numbers only,
    begins as far behind the one before as its cleaned text is long, and at most where the next is found.
    """
    if cleaned == text:
        return list(turns)
    probes = _probes(text, turns)
    found = _found(text, cleaned, probes, clean)
    starts, start, before, latest = list[int](), 0, 0, _latest(found, len(cleaned))
    for turn, page, position, end in zip(turns, probes, found, latest, strict=True):
        if position is None:
            # With a character more, so that the blanks before the turn are at no end.
            start += max(len(clean(text[before : turn + 1])) - 1, 0)
        else:
            start = max(start, _start_of_page(cleaned, position + 1, (clean(text[turn : probe + 1]) for probe in page)))
        start = min(start, end)
        starts.append(start)
        before = turn
    return starts


def _probes(text: str, turns: Sequence[int]) -> list[list[int]]:
    """Return the letters to look for, of each page: the first that will do, the second, the fourth and so on."""
    return [
        [
            probe.start()
            for number, probe in enumerate(_PROBE.finditer(text, start, end), 1)
            if number & (number - 1) == 0
        ]
        for start, end in pairwise([*turns, len(text)])
    ]


def _found(
    text: str, cleaned: str, probes: Sequence[Sequence[int]], clean: Callable[[str], str]
) -> Sequence[int | None]:
    """Return where in the cleaned text the first letter of each page is of those that are left; None: nowhere.

    Text with other letters is cleaned alike, so the letters are where the two differ. Where some of them are cleaned away, those of all
    pages whose number has a certain bit are changed at once, so that the whole text is cleaned once more for each bit.
    """
    numbers = [page for page, letters in enumerate(probes) for _ in letters]
    places = [probe for letters in probes for probe in letters]
    changed = _changed(text, cleaned, places, clean)
    if len(changed) == len(places):
        pages_at = dict(zip(changed, numbers, strict=True))
    else:
        pages_at = dict.fromkeys(changed, 0)
        for bit in range(len(probes).bit_length() if changed else 0):
            chosen = [place for place, page in zip(places, numbers, strict=True) if page >> bit & 1]
            for position in _changed(text, cleaned, chosen, clean):
                pages_at[position] = pages_at.get(position, 0) | 1 << bit
    first: dict[int, int] = {}
    for position, page in sorted(pages_at.items()):
        first.setdefault(page, position)
    return [first.get(page) for page in range(len(probes))]


def _changed(text: str, cleaned: str, places: Sequence[int], clean: Callable[[str], str]) -> list[int]:
    """Return where the cleaned text changes when the letters at these places do; nowhere if they made a rule do something else."""
    other = clean(_with_other_letters(text, places)) if places else cleaned
    return list(_differences(cleaned, other)) if len(other) == len(cleaned) else []


def _with_other_letters(text: str, places: Sequence[int]) -> str:
    parts, end = list[str](), 0
    for place in places:
        parts += (text[end:place], _other_letter(text[place]))
        end = place + 1
    return "".join([*parts, text[end:]])


def _other_letter(letter: str) -> str:
    """Return a letter of the same kind that is in no word which a rule knows."""
    first, second = ("一", "丁") if not letter.isascii() else ("z", "x") if letter.islower() else ("Z", "X")
    return first if letter != first else second


def _differences(one: str, other: str) -> Iterator[int]:
    """Yield the indexes at which two texts of one length differ."""
    for start in range(0, len(one), _COMPARED_CHARS):
        pair = one[start : start + _COMPARED_CHARS], other[start : start + _COMPARED_CHARS]
        if pair[0] != pair[1]:
            yield from (start + index for index, (a, b) in enumerate(zip(*pair, strict=True)) if a != b)


def _latest(found: Sequence[int | None], end: int) -> list[int]:
    """Return where each page begins at the latest: where one of its letters is, or of the next page that has one."""
    latest: list[int] = []
    for position in reversed(found):
        end = min(end, end if position is None else position)
        latest.append(end)
    return latest[::-1]


def _start_of_page(cleaned: str, end: int, begins: Iterator[str]) -> int:
    """Return where a page starts of which a letter ends at `end`; one of `begins` is its text up to this letter, cleaned by itself.

    Where noise stands across the turn, they agree behind the noise only.
    """
    longest = 1
    for begin in filter(None, begins):
        if cleaned.endswith(begin, 0, end):
            return end - len(begin)
        pairs = zip(reversed(begin), reversed(cleaned[max(end - len(begin), 0) : end]), strict=False)
        longest = max(longest, sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)))
    return end - longest


def _last_filled(row: Sequence[str]) -> int:
    return next((index for index in range(len(row) - 1, -1, -1) if row[index]), -1)


def _padded(row: list[str], columns: int) -> list[str]:
    return row + [""] * (columns - len(row))


def _pipe_row(row: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
