"""Tables of HTML: those that hold data, and those that only lay out a page."""

from collections.abc import Iterator, Set
from typing import Final

from lxml import etree

from services.ingestion.parsing.grid import MAX_SPAN, Grid
from services.ingestion.parsing.html_text import inner_text, name_of

_ROW_GROUPS: Final = frozenset({"thead", "tbody", "tfoot"})
_CELLS: Final = frozenset({"td", "th"})
_LAYOUT_ROLES: Final = frozenset({"presentation", "none"})
_PAGE_PARTS: Final = ("table", "h1", "h2", "h3", "h4", "h5", "h6", "pre")
_MAX_CELL_CHARS: Final = 1_500


def is_layout(table: etree._Element, left_out: Set[etree._Element]) -> bool:
    """Whether the table holds parts of a page: headings, code, other tables, or text too long for a cell."""
    if table.get("role") in _LAYOUT_ROLES:
        return True
    inner = table.iter(*_PAGE_PARTS)
    next(inner)  # itself
    if next(inner, None) is not None:
        return True
    rows = list(_rows(table))
    if all(len(list(_cells(row))) <= 1 for row in rows):
        return True
    return any(_is_long(cell, left_out) for row in rows for cell in _cells(row))


def table_rows(table: etree._Element, left_out: Set[etree._Element]) -> tuple[str, list[list[str]]]:
    """Return a table's caption and its rows, the rows of its header joined to one. Raises TextTooLarge."""
    rows = [row for row in _rows(table) if row not in left_out]
    grid = Grid()
    for row in rows:
        grid.row()
        for cell in _cells(row):
            text = "" if cell in left_out else inner_text(cell, left_out)
            grid.cell(text, columns=_span(cell, "colspan"), rows=_span(cell, "rowspan"))
    caption = table.find("caption")
    words = "" if caption is None or caption in left_out else inner_text(caption, left_out)
    return words, grid.finish(_header_rows(rows))


def _rows(table: etree._Element) -> Iterator[etree._Element]:
    for element in table:
        if not isinstance(element.tag, str):
            continue
        if name_of(element) == "tr":
            yield element
        elif name_of(element) in _ROW_GROUPS:
            yield from (row for row in element if isinstance(row.tag, str) and name_of(row) == "tr")


def _cells(row: etree._Element) -> Iterator[etree._Element]:
    return (cell for cell in row if isinstance(cell.tag, str) and name_of(cell) in _CELLS)


def _header_rows(rows: list[etree._Element]) -> int:
    """Count the rows at the top that are in a `thead` or made of `th` alone."""
    count = 0
    for row in rows:
        parent = row.getparent()
        is_head = parent is not None and name_of(parent) == "thead"
        names = [name_of(cell) for cell in _cells(row)]
        if not is_head and ("td" in names or len(names) < 2):
            break
        count += 1
    return count if count < len(rows) else 1


def _span(cell: etree._Element, name: str) -> int:
    value = cell.get(name, "").strip()
    return min(int(value), MAX_SPAN) if value.isdecimal() and len(value) < 10 else 1


def _is_long(cell: etree._Element, left_out: Set[etree._Element]) -> bool:
    return len(inner_text(cell, left_out)) > _MAX_CELL_CHARS
