"""Tables in text files: CSV and its relatives, whichever sign stands between the cells."""

import csv
from collections import Counter
from io import StringIO
from typing import Final

from services.ingestion.parsing.builder import DocumentBuilder

_DELIMITERS: Final = ",\t;|"
_SAMPLE_LINES: Final = 50
_SAMPLE_CHARS: Final = 64 * 1024
_LEAST_AGREEMENT: Final = 0.5


def parse_delimited(text: str, builder: DocumentBuilder) -> bool:
    """Read a table into the builder, its first row as the header. Return False, nothing added, where no sign makes it a table.

    Raises TextTooLarge.
    """
    delimiter, text = _declared(text)
    delimiter = delimiter or _guess(text)
    if delimiter is None:
        return False
    builder.table(_rows(text, delimiter))
    return True


def _declared(text: str) -> tuple[str | None, str]:
    """Return the delimiter that Excel's `sep=;` line gives, and the text without that line."""
    first, _, rest = text.partition("\n")
    value = first.strip().lower().removeprefix("sep=")
    return (value, rest) if first.lower().startswith("sep=") and len(value) == 1 else (None, text)


def _guess(text: str) -> str | None:
    """Return the delimiter by which most of the first rows get the same number of cells, and more than one."""
    sample = "\n".join(text[:_SAMPLE_CHARS].split("\n")[:_SAMPLE_LINES])
    best, best_score = None, (0.0, 0)
    for delimiter in _DELIMITERS:
        widths = Counter(len(row) for row in _rows(sample, delimiter) if row)
        width, rows = max(widths.items(), key=lambda item: (item[1], item[0]), default=(0, 0))
        score = (rows / max(widths.total(), 1), width)
        if width > 1 and score > best_score:
            best, best_score = delimiter, score
    return best if best_score[0] >= _LEAST_AGREEMENT else None


def _rows(text: str, delimiter: str) -> list[list[str]]:
    """Return the rows. Quotation marks that swallow more than a cell may hold are signs like any other."""
    try:
        return list(csv.reader(StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error:
        return [line.split(delimiter) for line in text.split("\n")]
