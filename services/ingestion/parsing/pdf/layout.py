"""Reading order: where a page has columns, each is read down to its end before the next.

A gutter is a strip that no segment crosses in a number of rows, with prose on both sides. Where there is one, the page is
cut into what is above, the left, the right, and what is below, and each part again. What has no gutter is read row by
row; so are tables, whose cells are no prose.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import Final

from services.ingestion.parsing.pdf.segments import Cell, Line, Segment

Row = list[Segment]

_LEAST_GUTTER: Final = 0.6  # of the segments' height
_LEAST_ROWS: Final = 5  # of text on either side of a gutter
_LEAST_FILL: Final = 0.65  # of a column's width, by half of its lines
_VERSE_FILL: Final = 0.45
_LEAST_CHARS: Final = 30  # of half of a column's lines; a Chinese character counts three times
_COMPARED: Final = 25  # segments at either end of a row, which has hardly ever more
_MAX_DEPTH: Final = 6
_MAX_ROWS: Final = 500  # of a page that is searched for columns
_CELL_GAP: Final = 0.9  # of the height: wider than most blanks between words
_ROW_GAP: Final = 2.0  # wider than any
_BLANK_GAP: Final = 0.12


def read_lines(segments: Sequence[Segment], page: int) -> list[Line]:
    """Return the lines of a page, in the order in which they are read."""
    return [line for rows in _parts(segments, _MAX_DEPTH) for line in _lines(rows, page)]


def rows_of(segments: Sequence[Segment]) -> list[Row]:
    """Return the segments by rows from top to bottom, each from left to right."""
    rows: list[Row] = []
    for segment in sorted(segments, key=lambda segment: -(segment.top + segment.bottom)):
        for row in reversed(rows[-3:]):
            if _is_beside(segment, row):
                row.append(segment)
                break
        else:
            rows.append([segment])
    for row in rows:
        row.sort(key=lambda segment: segment.left)
    return rows


def _is_beside(segment: Segment, row: Row) -> bool:
    """Whether the segment stands in the row, by its height, and in none of the row's segments' places."""
    for other in row if len(row) <= 2 * _COMPARED else row[:_COMPARED] + row[-_COMPARED:]:
        overlap = min(segment.top, other.top) - max(segment.bottom, other.bottom)
        if overlap < 0.5 * min(segment.height, other.height):
            return False
        shared = min(segment.right, other.right) - max(segment.left, other.left)
        if shared > 0.5 * min(segment.right - segment.left, other.right - other.left):
            return False
    return True


def _parts(segments: Sequence[Segment], depth: int) -> Iterator[list[Row]]:
    rows = rows_of(segments)
    cut = _gutter(rows) if depth and len(rows) <= _MAX_ROWS else None
    if cut is None:
        if rows:
            yield rows
        return
    first, after, middle = cut
    inside = [segment for row in rows[first:after] for segment in row]
    yield from _parts([segment for row in rows[:first] for segment in row], depth - 1)
    yield from _parts([segment for segment in inside if segment.middle < middle], depth - 1)
    yield from _parts([segment for segment in inside if segment.middle >= middle], depth - 1)
    yield from _parts([segment for row in rows[after:] for segment in row], depth - 1)


def _gutter(rows: Sequence[Row]) -> tuple[int, int, float] | None:
    """Return the best gutter: its first row, the row behind its last, and its middle."""
    best: tuple[int, int, float] | None = None
    seen: set[tuple[int, int, int]] = set()
    for index, row in enumerate(rows):
        for here, after in pairwise(row):
            if after.left - here.right < _LEAST_GUTTER * min(here.height, after.height):
                continue
            if best and best[0] <= index < best[1] and here.right < best[2] < after.left:
                continue  # part of the best one so far
            first, end, middle = _extend(rows, index, here.right, after.left, _LEAST_GUTTER * here.height)
            key = (first, end, round(middle))
            if key in seen or (best and end - first <= best[1] - best[0]):
                continue
            seen.add(key)
            if _parts_prose(rows[first:end], middle):
                best = first, end, middle
    return best


def _extend(rows: Sequence[Row], index: int, left: float, right: float, least: float) -> tuple[int, int, float]:
    """Return how far up and down the strip stays free; it may grow narrower, down to `least`."""
    first, end = index, index + 1
    for step in (-1, 1):
        at = index + step
        while 0 <= at < len(rows):
            narrowed = _narrowed(rows[at], left, right)
            if narrowed is None or narrowed[1] - narrowed[0] < least:
                break
            left, right = narrowed
            first, end = min(first, at), max(end, at + 1)
            at += step
    return first, end, (left + right) / 2


def _narrowed(row: Row, left: float, right: float) -> tuple[float, float] | None:
    """Return what the row leaves free of the strip, or None when a segment crosses it."""
    for segment in row:
        if segment.left <= left and segment.right >= right:
            return None
        if segment.left < right and segment.right > left:
            if segment.middle < (left + right) / 2:
                left = max(left, segment.right)
            else:
                right = min(right, segment.left)
    return (left, right) if left < right else None


def _parts_prose(rows: Sequence[Row], middle: float) -> bool:
    left = [[segment for segment in row if segment.middle < middle] for row in rows]
    right = [[segment for segment in row if segment.middle >= middle] for row in rows]
    return _is_prose(left) and _is_prose(right)


def _is_prose(rows: Sequence[Row]) -> bool:
    """Whether half of the lines are long, for people and for the column, as those of tables, labels and lists aren't."""
    rows = [row for row in rows if row]
    if len(rows) < _LEAST_ROWS:
        return False
    width = max(row[-1].right for row in rows) - min(row[0].left for row in rows)
    apart = sum(1 for row in rows for here, after in pairwise(row) if after.left - here.right > _CELL_GAP * here.height)
    fill = median(sum(segment.right - segment.left for segment in row) for row in rows)
    chars = median(
        sum(len(segment.text.encode()) for segment in row) for row in rows
    )  # a Chinese character has three bytes
    if len(rows) >= 2 * _LEAST_ROWS and apart <= len(rows) // 8:  # verse, dialogue
        return fill >= _VERSE_FILL * width and chars >= _LEAST_CHARS
    return fill >= _LEAST_FILL * width and chars >= _LEAST_CHARS


def _lines(rows: Sequence[Row], page: int) -> Iterator[Line]:
    edge_left = min(row[0].left for row in rows)
    edge_right = max(segment.right for row in rows for segment in row)
    for row in rows:
        cells = _cells(row)
        main = max(row, key=lambda segment: (len(segment.text), segment.size))
        widest = max((after[1] - here[2] for here, after in pairwise(cells)), default=0.0)
        is_row = widest > _ROW_GAP * main.height
        yield Line(
            ("  " if is_row else " ").join([cell[0].rstrip() for cell in cells[:-1]] + [cells[-1][0]]),
            min(segment.left for segment in row),
            max(segment.right for segment in row),
            main.bottom,
            main.top,
            main.size,
            edge_left,
            edge_right,
            page,
            tuple(cells) if len(cells) > 1 else (),
            is_row,
        )


def _cells(row: Row) -> list[Cell]:
    """Join the row's segments to cells: text, left and right edge."""
    if _runs_to_the_left(row):
        return [(" ".join(segment.text for segment in reversed(row)), row[0].left, row[-1].right)]
    cells: list[Cell] = []
    for before, segment in zip([None, *row], row, strict=False):
        if before is None or segment.left - before.right > _CELL_GAP * max(before.height, segment.height):
            cells.append((segment.text, segment.left, segment.right))
            continue
        text, left, right = cells[-1]
        gap = segment.left - before.right
        blank = " " if text.endswith(" ") or gap > _BLANK_GAP * min(before.height, segment.height) else ""
        cells[-1] = (text.rstrip() + blank + segment.text, left, max(right, segment.right))
    return cells


def _runs_to_the_left(row: Row) -> bool:
    """Whether the row is Hebrew or Arabic."""
    text = "".join(segment.text for segment in row)
    return not text.isascii() and 2 * sum("\u0590" <= char < "\u0900" for char in text) > len(text)
