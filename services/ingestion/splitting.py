"""From sections to pieces: what is too long is cut at its natural boundaries.

1. A section of at most `section_limit` characters is one piece; text without a heading is cut from `chunk_size` on.
2. A longer one is cut at the strongest boundary (paragraph, line, sentence, clause, word) in the second half of each
   window of `chunk_size` characters.
3. A table or code block of at most `section_limit` characters is kept whole, together with the text before it where
   that is short and both fit. A longer one is cut at its line ends.
4. Neighbours share the last `overlap` characters of the first, and up to half as many more where that reaches a
   boundary. Nothing is repeated across the edge of a table or code block or across a run of white space.

Without the repetitions the pieces hold all text of the sections, in order. Each step moves on by a quarter of
`chunk_size` at least (blocks aside, which are never repeated), so that the time is linear in the text.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from services.ingestion.boundaries import last_boundary
from services.ingestion.sections import Block, ParsedDocument, Piece, Section, trim
from shared.contracts.knowledge_settings import SplitSettings

_NOT_WHITE = re.compile(r"\S")


def split(document: ParsedDocument, settings: SplitSettings) -> Iterator[Piece]:
    """Yield the document's pieces in order. None is empty, and none ends in white space."""
    by_heading = settings.method == "heading"
    cutter = _Cutter(document.text, document.blocks, settings)
    ordinal = 0
    for section in document.sections if by_heading else _whole(document):
        limit = settings.section_limit if section.level else settings.chunk_size
        fits = section.end - section.start <= limit
        for start, end in [(section.start, section.end)] if fits else cutter.ranges(section.start, section.end):
            named = section if by_heading else _section_at(document.sections, start)
            yield Piece(ordinal, named.title, named.heading_path, document.text[start:end], start, end)
            ordinal += 1


def _whole(document: ParsedDocument) -> Iterator[Section]:
    """Yield the text, headings included, as one section."""
    start, end = trim(document.text, document.body_start, len(document.text))
    if start < end:
        yield Section("", (), 0, document.text[start:end], start, end)


def _section_at(sections: Sequence[Section], offset: int) -> Section:
    """Return the section that holds the offset or, where that is on a heading's line, the first one below."""
    index = bisect_right(sections, offset, key=lambda section: section.end)
    return sections[min(index, len(sections) - 1)]


@dataclass(frozen=True, slots=True)
class _Cutter:
    text: str
    blocks: Sequence[Block]
    settings: SplitSettings

    def ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the overlapping ranges, without white space at their ends, that `start:end` is cut into."""
        begin = cut = start
        while end - begin > self.settings.chunk_size:
            after, cut = cut, min(self._cut(begin, cut), end)
            first, last = trim(self.text, begin, cut)
            if last <= after:  # white space alone
                begin = cut
                continue
            yield first, last
            begin = self._next_begin(first, last, cut)
        first, last = trim(self.text, begin, end)
        if first < last and last > cut:
            yield first, last

    def _cut(self, begin: int, after: int) -> int:
        """Return where the piece from `begin` on ends: beyond `after`, the cut before it."""
        size, limit = self.settings.chunk_size, self.settings.section_limit
        high = begin + size
        block = self._torn_at(high)
        if block is None:
            low = max(begin + (size + self.settings.overlap) // 2, after)
            return last_boundary(self.text, low, high, lambda offset: self._torn_at(offset) is None)
        can_end_before = block.start > after
        if can_end_before and block.start - begin >= size // 2:
            return block.start
        if block.end - begin <= limit:
            return block.end
        if can_end_before:
            return block.start
        line_end = self.text.rfind("\n", after + 1, high) + 1
        return line_end or last_boundary(self.text, max(begin + size // 2, after), high, lambda _: True)

    def _next_begin(self, first: int, last: int, cut: int) -> int:
        """Return where the piece behind `first:last` begins: `overlap` characters before its end, or at the cut."""
        size, overlap = self.settings.chunk_size, self.settings.overlap
        slack = min(overlap // 2, (size - 2 * overlap) // 4)
        if overlap == 0 or cut - last > slack or self._at_block(last, cut):
            return cut
        earliest = max(last - overlap - slack, self._end_of_block_before(last), first + 1)
        target = last - overlap
        while target > earliest and self.text[target].isspace():
            target -= 1
        return last_boundary(self.text, earliest, target, lambda _: True) if earliest < target else earliest

    def _torn_at(self, offset: int) -> Block | None:
        """Return the block that a cut at the offset would tear."""
        index = bisect_left(self.blocks, offset, key=lambda block: block.start) - 1
        return self.blocks[index] if index >= 0 and offset < self.blocks[index].end else None

    def _at_block(self, last: int, cut: int) -> bool:
        """Whether the piece that ends at `last` ends with (a part of) a block, or the next one begins with one."""
        following = _NOT_WHITE.search(self.text, cut, cut + self.settings.chunk_size)
        return self._torn_at(last - 1) is not None or (
            following is not None and self._torn_at(following.end()) is not None
        )

    def _end_of_block_before(self, offset: int) -> int:
        index = bisect_right(self.blocks, offset, key=lambda block: block.end) - 1
        return self.blocks[index].end if index >= 0 else 0
