"""Packing whole sentences into pieces."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

from services.ingestion.boundaries import SENTENCE_END
from services.ingestion.sections import Block, trim
from services.ingestion.windows import Range, Windows


@dataclass(frozen=True, slots=True)
class _Unit:
    """A sentence, a table or code block, or a line of such a block; without the white space around it."""

    start: int
    end: int
    in_block: bool = False
    is_block: bool = False


def packed_sentences(windows: Windows, start: int, end: int) -> Iterator[Range]:
    """Yield ranges of whole sentences, as many as a window holds. Neighbours share the last sentences of the first, as far as
    `overlap` characters go.

    A sentence longer than a window is cut as any long text. A table or code block is a unit if a piece can hold it whole,
    else each of its lines is; neither is repeated.
    """
    packed: list[_Unit] = []
    for unit in _units(windows, start, end):
        if packed and not _has_room(windows, packed[0].start, unit):
            yield trim(windows.text, packed[0].start, packed[-1].end)
            packed = _repeated(windows, packed, unit)
        if packed or _has_room(windows, unit.start, unit):
            packed.append(unit)
        else:
            yield from windows.ranges(unit.start, unit.end)
    if packed:
        yield trim(windows.text, packed[0].start, packed[-1].end)


def _has_room(windows: Windows, begin: int, unit: _Unit) -> bool:
    """Whether a piece that begins there can take the unit in. Short text stays with the block behind it."""
    if unit.end - begin <= windows.room(begin):
        return True
    is_near = unit.start - begin < windows.limits.size // 2
    return unit.is_block and is_near and windows.holds_whole(Block(unit.start, unit.end), begin)


def _repeated(windows: Windows, packed: Sequence[_Unit], following: _Unit) -> list[_Unit]:
    """Return the last units of a piece that the next one begins with."""
    if following.in_block:
        return []
    earliest = max(packed[-1].end - windows.limits.overlap, following.end - windows.limits.size)
    last = takewhile(lambda unit: not unit.in_block and unit.start >= earliest, reversed(packed[1:]))
    return list(last)[::-1]


def _units(windows: Windows, start: int, end: int) -> Iterator[_Unit]:
    blocks = windows.blocks
    for index in range(bisect_right(blocks, start, key=lambda block: block.end), len(blocks)):
        block = blocks[index]
        if block.start >= end:
            break
        yield from _sentences(windows.text, start, block.start)
        begin, start = max(block.start, start), min(block.end, end)
        if (begin, start) == (block.start, block.end) and windows.holds_whole(block, begin):
            yield _Unit(begin, start, in_block=True, is_block=True)
        else:
            yield from _lines(windows.text, begin, start)
    yield from _sentences(windows.text, start, end)


def _sentences(text: str, start: int, end: int) -> Iterator[_Unit]:
    ends = (match.end() for match in SENTENCE_END.finditer(text, start, end))
    for begin, after in pairwise([start, *ends, end]):
        first, last = trim(text, begin, after)
        if first < last:
            yield _Unit(first, last)


def _lines(text: str, start: int, end: int) -> Iterator[_Unit]:
    while start < end:
        line_end = text.find("\n", start, end) + 1 or end
        first, last = trim(text, start, line_end)
        if first < last:
            yield _Unit(first, last, in_block=True)
        start = line_end
