"""Cutting what is too long into windows that share a little text, at natural boundaries, around tables and code."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from services.ingestion.boundaries import last_boundary
from services.ingestion.sections import Block, trim
from shared.tokens import count_tokens

_NOT_WHITE = re.compile(r"\S")
_DELIMITER_ROW = frozenset("|:- \t>")  # and the mark of a quotation that a table may stand in

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Limits:
    """Characters of a window and of what two neighbours share; characters and tokens up to which a section or a block is whole."""

    size: int
    overlap: int
    whole: int
    whole_tokens: int


@dataclass(frozen=True, slots=True)
class Windows:
    """Cuts ranges of a text. `blocks` are sorted and disjoint."""

    text: str
    blocks: Sequence[Block]
    limits: Limits
    _headers: dict[Block, int] = field(default_factory=dict)
    _tokens: dict[Block, int] = field(default_factory=dict)

    def fits(self, start: int, end: int) -> bool:
        """Whether this is read at once, so that it need not be cut."""
        length, limits = end - start, self.limits
        return length <= limits.size or (
            length <= limits.whole and count_tokens(self.text[start:end]) <= limits.whole_tokens
        )

    def ranges(self, start: int, end: int) -> Iterator[Range]:
        """Yield the overlapping ranges, without white space at their ends, that `start:end` is cut into."""
        begin = cut = start
        while end - begin > self.room(begin):
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

    def room(self, begin: int) -> int:
        """Characters that a window from `begin` on may hold, beside a repeated header."""
        return self.limits.size - len(self.header(begin))

    def header(self, begin: int) -> str:
        """Return the header's rows of the table that `begin` is in the middle of; empty if none, or none worth its space."""
        block = self.torn_at(begin)
        if block is None:
            return ""
        end = self._header_end(block)
        return self.text[block.start : end] if block.start < end <= begin else ""

    def _header_end(self, block: Block) -> int:
        """Return where a pipe table's two header rows end, the block's start if it is no table or they take half of a window."""
        end = self._headers.get(block)
        if end is None:
            nearest = min(block.end, block.start + self.limits.size // 2)
            first = self.text.find("\n", block.start, nearest) + 1
            second = self.text.find("\n", first, nearest) + 1 if first else 0
            is_table = second and "|" in self.text[block.start : first]
            is_header = is_table and set(self.text[first : second - 1]) <= _DELIMITER_ROW
            end = self._headers[block] = second if is_header else block.start
        return end

    def torn_at(self, offset: int) -> Block | None:
        """Return the block that a cut at the offset would tear."""
        index = bisect_left(self.blocks, offset, key=lambda block: block.start) - 1
        return self.blocks[index] if index >= 0 and offset < self.blocks[index].end else None

    def holds_whole(self, block: Block, begin: int) -> bool:
        """Whether a piece from `begin` on can hold the block, or the rest of it if it begins in its middle."""
        length, limits = block.end - begin, self.limits
        if begin > block.start or length <= limits.size:
            return length <= self.room(begin)
        if length > limits.whole:
            return False
        tokens = self._tokens.get(block)
        if tokens is None:
            tokens = self._tokens[block] = count_tokens(self.text[block.start : block.end])
        return tokens <= limits.whole_tokens and (
            begin == block.start or tokens + count_tokens(self.text[begin : block.start]) <= limits.whole_tokens
        )

    def _cut(self, begin: int, after: int) -> int:
        """Return where the piece from `begin` on ends: beyond `after`, the cut before it."""
        size = self.room(begin)
        high = begin + size
        block = self.torn_at(high)
        if block is None:
            low = max(begin + (size + self.limits.overlap) // 2, after)
            return last_boundary(self.text, low, high, lambda offset: self.torn_at(offset) is None)
        can_end_before = block.start > after
        if can_end_before and block.start - begin >= size // 2:
            return block.start
        if self.holds_whole(block, begin):
            return block.end
        line_end = self.text.rfind("\n", after + 1, high) + 1
        if can_end_before and (self.holds_whole(block, block.start) or line_end <= self._header_end(block)):
            return block.start
        return line_end or last_boundary(self.text, max(begin + size // 2, after), high, lambda _: True)

    def _next_begin(self, first: int, last: int, cut: int) -> int:
        """Return where the piece behind `first:last` begins: `overlap` characters before its end, or at the cut."""
        size, overlap = self.limits.size, self.limits.overlap
        slack = min(overlap // 2, (size - 2 * overlap) // 4)
        if overlap == 0 or cut - last > slack or self._at_block(last, cut):
            return cut
        earliest = max(last - overlap - slack, self._end_of_block_before(last), first + 1)
        target = last - overlap
        while target > earliest and self.text[target].isspace():
            target -= 1
        return last_boundary(self.text, earliest, target, lambda _: True) if earliest < target else earliest

    def _at_block(self, last: int, cut: int) -> bool:
        """Whether the piece that ends at `last` ends with (a part of) a block, or the next one begins with one."""
        following = _NOT_WHITE.search(self.text, cut, cut + self.limits.size)
        return self.torn_at(last - 1) is not None or (
            following is not None and self.torn_at(following.end()) is not None
        )

    def _end_of_block_before(self, offset: int) -> int:
        index = bisect_right(self.blocks, offset, key=lambda block: block.end) - 1
        return self.blocks[index].end if index >= 0 else 0
