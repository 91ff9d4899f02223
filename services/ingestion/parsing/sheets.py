"""A sheet of a workbook, on which tables and lines stand anywhere: what belongs together becomes one table."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from services.ingestion.parsing.builder import DocumentBuilder
from services.ingestion.text import TextTooLarge

_MAX_CHARS: Final = 40_000_000
_MAX_MERGES: Final = 100_000
_MAX_MERGED_ROWS: Final = 1_000
_MAX_REPEATED_CHARS: Final = 80
_MAX_TABLE_CELLS: Final = 4_000_000

Place = tuple[int, int]  # column from 0, row from 1


@dataclass(slots=True)
class _Row:
    number: int
    cells: dict[int, str] = field(default_factory=dict)
    is_all_text: bool = True


class Sheet:
    """The filled cells of a sheet. Raises TextTooLarge while they are put in."""

    def __init__(self) -> None:
        self._rows: list[_Row] = []
        self._merges: list[tuple[Place, Place]] = []
        self._chars = 0

    def row(self, number: int | None) -> None:
        """Begin a row; without a number it follows the one before."""
        before = self._rows[-1].number if self._rows else 0
        self._rows.append(_Row(before + 1 if number is None else number))

    def cell(self, column: int, text: str, *, is_text: bool) -> None:
        """Add a cell to the row."""
        if not text:
            return
        row = self._rows[-1]
        self._put(row, column, text)
        row.is_all_text &= is_text

    def merge(self, first: Place | None, last: Place | None) -> None:
        """Say that the cells from one to another are one."""
        if first and last and last[1] > first[1] and len(self._merges) < _MAX_MERGES:
            self._merges.append((first, last))

    def write(self, name: str, builder: DocumentBuilder) -> None:
        """Add the sheet to the document, under its name, if it holds anything."""
        self._rows = [row for row in self._rows if row.cells]
        if not self._rows:
            return
        self._repeat_merged()
        builder.heading(1, name)
        for region in self._regions():
            _write_region(region, builder)

    def _repeat_merged(self) -> None:
        """Repeat a short text that spans rows in each of them, so that each can be read by itself."""
        by_number = {row.number: row for row in self._rows}
        for (column, first), (_, last) in self._merges:
            top = by_number.get(first)
            text = top.cells.get(column, "") if top else ""
            if 0 < len(text) <= _MAX_REPEATED_CHARS:
                for number in range(first + 1, min(last, first + _MAX_MERGED_ROWS) + 1):
                    if (row := by_number.get(number)) and column not in row.cells:
                        self._put(row, column, text)

    def _put(self, row: _Row, column: int, text: str) -> None:
        self._chars += len(text) + 1
        if self._chars > _MAX_CHARS:
            raise TextTooLarge(f"a sheet has more than {_MAX_CHARS:,} characters")
        row.cells[column] = text

    def _regions(self) -> Iterator[list[_Row]]:
        """Cut the rows where an empty one is followed by what looks like another table's header: a row of words alone."""
        region: list[_Row] = []
        for row in self._rows:
            is_after_gap = bool(region) and row.number > region[-1].number + 1
            if is_after_gap and row.is_all_text:
                yield region
                region = []
            region.append(row)
        yield region


def _write_region(rows: list[_Row], builder: DocumentBuilder) -> None:
    """Add lines that stand above a table as paragraphs, then the table."""
    count = 0
    while count < len(rows) and len(rows[count].cells) == 1:
        builder.paragraph(next(iter(rows[count].cells.values())))
        count += 1
    table = rows[count:]
    columns = sorted({column for row in table for column in row.cells})
    if len(columns) * len(table) > _MAX_TABLE_CELLS:  # scattered over the whole sheet: no table
        builder.table([[text for _, text in sorted(row.cells.items())] for row in table])
    else:
        builder.table([[row.cells.get(column, "") for column in columns] for row in table])
