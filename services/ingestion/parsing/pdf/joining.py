"""Lines become paragraphs again: where a line goes on in the next, and how the two are joined."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, Literal

from services.ingestion.pages import PageStart
from services.ingestion.parsing.pdf.segments import CJK_RANGES, Line
from services.ingestion.parsing.pdf.words import Words

Break = Literal["paragraph", "line", "none"]

_CJK: Final = re.compile(f"[{CJK_RANGES}]")
_CJK_MARGIN: Final = 2.2  # heights that a line may end before the edge and yet go on: punctuation doesn't begin a line
_LONG_LINE: Final = 60  # a Chinese character counts three times
_INDENT: Final = 0.8
_LARGER_STEP: Final = 1.35  # times the usual step from line to line: a new paragraph
_LARGEST_STEP: Final = 1.8  # the same after a full line that ends in the middle of a sentence
_SAME_SIZE: Final = 0.12
_LIST_MARK: Final = re.compile(
    r"(?:[•‣▪▫■□●○◦◆◇➢➤✓✔–—*·-]\s|\(?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,5})[.)]\s"
    r"|[（(]?[一二三四五六七八九十\d]{1,3}[)）、]|第[一二三四五六七八九十百\d]{1,4}[章节条])"
)
_FIRST_WORD: Final = re.compile(rf"[^\s{CJK_RANGES}]+")
_SENTENCE_ENDS: Final = tuple(".!?。！？…:：”」』")
_LEADER: Final = re.compile(r"(?: ?[.·…]){5,} ?")  # from a title to its page's number
_REST_OF_WORD: Final = re.compile(r"([^\W\d_]{2,})(?![\w-])")
_IN_ADDRESS: Final = re.compile(r"(?:https?://|www\.|/)\S*$|%[0-9A-Fa-f]?$")
_ADDRESS_PART: Final = re.compile(r"[\w%/?&=#.~+-]")


@dataclass
class Paragraph:
    """Lines that were joined, the first of them on a page (from 1), and where in the text the pages behind that begin."""

    text: str
    page: int
    turns: list[PageStart] = field(default_factory=list)

    def add(self, text: str, line: Line, length: int) -> None:
        """Go on to a text whose last characters, so many, are a line's."""
        self.text = text
        if line.page + 1 != (self.turns[-1].page if self.turns else self.page):
            self.turns.append(PageStart(len(text) - length, line.page + 1))


class Joiner:
    """Joins the lines of a document, which tell together how far its lines are apart and how its words are written."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._words = Words(line.text for line in lines)
        self._steps = _usual_steps(lines)
        self._at_edge = Counter(
            _column(line) for line in lines if line.edge_right - line.right <= _CJK_MARGIN * line.height
        )
        self._broken_anywhere = _are_words_broken_anywhere(lines)

    def paragraphs(self, lines: Sequence[Line]) -> Iterator[Paragraph]:
        """Yield the paragraphs of the lines, which may go on in another column. Lines that don't go on keep their ends."""
        paragraph, joined = Paragraph("", 0), False
        for before, line in zip([None, *lines], lines, strict=False):
            words = _LEADER.sub(" … ", line.text)
            break_ = self._break(before, line, joined) if before else "paragraph"
            if break_ == "none":
                paragraph.add(self._join(paragraph.text, words), line, len(words.lstrip()))
                joined = True
            elif break_ == "line":
                paragraph.add(f"{paragraph.text.rstrip()}\n{words.strip()}", line, len(words.strip()))
            else:
                if paragraph.text:
                    yield paragraph
                paragraph, joined = Paragraph(words.lstrip(), line.page + 1), False
        if paragraph.text:
            yield paragraph

    def _break(self, before: Line, line: Line, joined: bool) -> Break:
        """Return what is between two lines. `joined`: the first is one of a paragraph that fills its lines."""
        if abs(before.size - line.size) > _SAME_SIZE * max(before.size, line.size):
            return "paragraph"
        full = self._is_full(before, line)
        ended = _is_sentence(before)
        step = before.bottom - line.bottom
        if _column(before) != _column(line) or step <= 0:
            return "none" if full and not ended and not _is_apart(before, line) else "paragraph"
        larger = _LARGEST_STEP if full and not ended and not before.is_row else _LARGER_STEP
        if step > larger * max(self._steps.get(_size(line), 0.0), 0.8 * line.height):
            return "paragraph"
        one_by_one = ended and not joined and _is_sentence(line)  # sentences of a line each: verse, examples
        if _is_apart(before, line) or one_by_one or not (full or (joined and ended)):
            return "line"
        indented = line.left - before.left > _INDENT * line.height and not _LIST_MARK.match(before.text)
        return "paragraph" if ended and (indented or not full) else "none"

    def _is_full(self, line: Line, following: Line) -> bool:
        """Whether the next line's first word would not have found room in the line.

        A short line whose end no other line reaches ends there by itself.
        """
        if self._at_edge[_column(line)] < 2 and len(line.text.encode()) < _LONG_LINE:
            return False
        room = line.edge_right - line.right
        word = _FIRST_WORD.match(following.text.lstrip())
        if not word:
            return room <= _CJK_MARGIN * line.height
        width = (following.right - following.left) / max(len(following.text), 1)
        return room <= max((len(word[0]) + 1) * width * 1.15, line.height)

    def _join(self, text: str, following: str) -> str:
        stripped, rest = text.rstrip(), following.lstrip()
        continued = _REST_OF_WORD.match(rest)
        if continued and continued[1].islower() and (word := self._words.mended(stripped, continued[1])):
            return word + rest[continued.end() :]
        if stripped[-1:] in "-‐" and rest[:1].isalnum() and not stripped[-2:-1].isspace():
            return stripped + rest
        if not stripped or not rest or _CJK.match(stripped[-1]) or _CJK.match(rest[0]):
            return stripped + rest
        if text == stripped and self._is_one_token(stripped, rest):
            return stripped + rest
        return f"{stripped} {rest}"

    def _is_one_token(self, text: str, rest: str) -> bool:
        if self._broken_anywhere or (text[-1].isdigit() and rest[0].isdigit() and _CJK.search(text[-20:])):
            return True
        return bool(_IN_ADDRESS.search(text[-200:]) and _ADDRESS_PART.match(rest) and not text.endswith((".", ",")))


def _is_sentence(line: Line) -> bool:
    return line.text.rstrip().endswith(_SENTENCE_ENDS)


def _is_apart(before: Line, line: Line) -> bool:
    """Whether a line begins or ends something: an item of a list, an entry of a table of contents, a row of a table."""
    return bool(before.is_row or line.is_row or _LIST_MARK.match(line.text) or _LEADER.search(before.text))


def _column(line: Line) -> tuple[int, float, float]:
    return line.page, line.edge_left, line.edge_right


def _size(line: Line) -> int:
    return round(line.size * 2)


def _usual_steps(lines: Sequence[Line]) -> dict[int, float]:
    """Return the usual step from line to line by the font's size: the smaller steps, as larger ones are between paragraphs."""
    steps: defaultdict[int, list[float]] = defaultdict(list)
    for before, line in pairwise(lines):
        step = before.bottom - line.bottom
        if _column(before) == _column(line) and _size(before) == _size(line) and step > 0.7 * line.height:
            steps[_size(line)].append(step)
    return {size: sorted(found)[(len(found) * 2) // 5] for size, found in steps.items()}


def _are_words_broken_anywhere(lines: Sequence[Line]) -> bool:
    """Tell files made by cutting Chinese text wherever the line was full, also within Latin words and numbers.

    Where a Latin word or a number stands at a line's end and another at the next line's begin, hardly any room is left.
    """
    pairs = [(before, line) for before, line in pairwise(lines) if _column(before) == _column(line)]
    full = [before for before, line in pairs if before.edge_right - before.right < line.height]
    if len(full) < 10 or 3 * sum(len(_CJK.findall(line.text)) for line in full) < sum(len(line.text) for line in full):
        return False
    inside = [
        before
        for before, line in pairs
        if before.text[-1:].isascii() and line.text[:1].isascii() and 2 * line.right > line.edge_left + line.edge_right
    ]
    cut = [line for line in inside if line.edge_right - line.right < 0.75 * line.height]
    return len(inside) >= 5 and len(cut) >= 0.9 * len(inside)
