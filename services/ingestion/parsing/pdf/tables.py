"""Tables without rules of their own: rows whose cells stand under each other."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from services.ingestion.parsing.pdf.segments import Line

Interval = tuple[float, float]

_LEAST_ROWS: Final = 3
_LEAST_COLUMNS: Final = 3
_MOST_STEP: Final = 3.0  # heights from one row to the next


def by_tables(lines: Sequence[Line]) -> Iterator[tuple[bool, Sequence[Line]]]:
    """Cut the lines, in order, into (is a table, its lines)."""
    start = index = 0
    while index < len(lines):
        rows = _table(lines[index:]) if lines[index].cells else 0
        if rows:
            if start < index:
                yield False, lines[start:index]
            yield True, lines[index : index + rows]
            start = index = index + rows
        else:
            index += 1
    if start < len(lines):
        yield False, lines[start:]


def table_rows(lines: Sequence[Line]) -> list[list[str]]:
    """Return the cells by rows and columns."""
    columns = _columns(lines)
    rows = []
    for line in lines:
        row = [""] * len(columns)
        for text, left, right in _cells(line):
            row[_column_of((left, right), columns)] = text.strip()
        rows.append(row)
    return rows


def _table(lines: Sequence[Line]) -> int:
    """Return how many of the first lines are one table, or 0."""
    count = 1
    columns = [(left, right) for _, left, right in lines[0].cells]
    for before, line in pairwise(lines):
        if (
            line.page != before.page
            or not 0 < before.bottom - line.bottom <= _MOST_STEP * line.height
            or not line.cells
        ):
            break
        merged = _merged([*columns, *((left, right) for _, left, right in line.cells)])
        if not _fits(lines[: count + 1], merged):
            break
        columns = merged
        count += 1
    return count if count >= _LEAST_ROWS and len(columns) >= _LEAST_COLUMNS else 0


def _fits(lines: Sequence[Line], columns: Sequence[Interval]) -> bool:
    """Whether no two cells of a row stand in one column."""
    return all(
        len({_column_of((left, right), columns) for _, left, right in line.cells}) == len(line.cells) for line in lines
    )


def _columns(lines: Sequence[Line]) -> list[Interval]:
    return _merged([(left, right) for line in lines for _, left, right in _cells(line)])


def _cells(line: Line) -> Sequence[tuple[str, float, float]]:
    return line.cells or ((line.text, line.left, line.right),)


def _merged(intervals: Sequence[Interval]) -> list[Interval]:
    """Return the intervals, those that overlap as one."""
    merged: list[Interval] = []
    for left, right in sorted(intervals):
        if merged and left < merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], right)
        else:
            merged.append((left, right))
    return merged


def _column_of(cell: Interval, columns: Sequence[Interval]) -> int:
    return next(index for index, (left, right) in enumerate(columns) if left <= cell[0] <= right)
