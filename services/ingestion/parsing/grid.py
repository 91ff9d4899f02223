"""Tables with merged cells, laid out on a grid so that each row can be read by itself."""

from typing import Final

from services.ingestion.text import TextTooLarge

MAX_CELLS: Final = 2_000_000
MAX_SPAN: Final = 1_000
_MAX_REPEATED_CHARS: Final = 80


class Grid:
    """A table under construction, row by row, cell by cell. Raises TextTooLarge beyond 2,000,000 cells.

    A short text that spans rows is repeated in each, because a row that is found alone has to say what it belongs to. One that spans
    columns stands in the first of them, in the header's rows in all.
    """

    def __init__(self) -> None:
        self._rows: list[list[str]] = []
        self._spans: dict[int, tuple[int, str]] = {}  # by column: rows still to come, text
        self._covered: list[set[int]] = []  # by row: columns whose text came from their left
        self._cells = 0

    def row(self) -> None:
        """Begin a row. Cells from above are put in where they reach down."""
        self._continue()
        self._rows.append([])
        self._covered.append(set())

    def cell(self, text: str, *, columns: int = 1, rows: int = 1) -> None:
        """Add a cell to the row, behind those that reach into it from above."""
        self._continue()
        columns, rows = _bounded(columns), _bounded(rows)
        row = self._rows[-1]
        for offset in range(columns):
            if rows > 1:
                self._spans[len(row)] = (rows - 1, text if offset == 0 and len(text) <= _MAX_REPEATED_CHARS else "")
            if offset:
                self._covered[-1].add(len(row))
            self._put(text if offset == 0 else "")

    def finish(self, header_rows: int = 1) -> list[list[str]]:
        """Return the rows, the first `header_rows` of them joined to one."""
        self._continue()
        header_rows = min(header_rows, len(self._rows))
        if header_rows <= 1:
            return self._rows
        spread = [self._spread(index) for index in range(header_rows)]
        width = max(map(len, spread))
        columns = ([row[column] for row in spread if column < len(row)] for column in range(width))
        return [[" ".join(dict.fromkeys(filter(None, column))) for column in columns], *self._rows[header_rows:]]

    def _continue(self) -> None:
        row = self._rows[-1] if self._rows else []
        while (span := self._spans.get(len(row))) is not None:
            rows, text = span
            if rows > 1:
                self._spans[len(row)] = (rows - 1, text)
            else:
                del self._spans[len(row)]
            self._put(text)

    def _put(self, text: str) -> None:
        self._cells += 1
        if self._cells > MAX_CELLS:
            raise TextTooLarge(f"a table has more than {MAX_CELLS:,} cells")
        self._rows[-1].append(text)

    def _spread(self, index: int) -> list[str]:
        """Return a row with what spans columns in all of them."""
        spread: list[str] = []
        for column, text in enumerate(self._rows[index]):
            is_covered = column in self._covered[index] and spread
            spread.append(spread[-1] if is_covered else text)
        return spread


def _bounded(span: int) -> int:
    return min(max(span, 1), MAX_SPAN)
