"""Excel files (.xlsx), straight from their XML: a section a sheet, row by row, with the values that were last shown."""

from collections.abc import Iterator
from typing import Final

from lxml import etree

from services.ingestion.parsing.archive import Archive
from services.ingestion.parsing.builder import DocumentBuilder
from services.ingestion.parsing.ooxml import Package, attribute, child, kind_of
from services.ingestion.parsing.safe_xml import stream_elements
from services.ingestion.parsing.sheets import Sheet
from services.ingestion.parsing.xlsx_values import Values, child_or_nothing, read_formats, shared_text

_MAX_COLUMN_LETTERS: Final = 3


def parse_xlsx(archive: Archive, builder: DocumentBuilder) -> None:
    """Read a workbook into the builder. Hidden sheets are left out, and said to be. Raises what Archive raises."""
    package = Package(archive)
    workbook = package.root(package.main)
    relationships = package.relationships(package.main)
    values = _values(package, workbook)
    for sheet in child_or_nothing(workbook, "x:sheets"):
        name = sheet.get("name", "")
        found = relationships.get(attribute(sheet, "id") or "")
        if found is None or found.kind != "worksheet":
            continue
        if sheet.get("state", "visible") != "visible":
            builder.note("hidden_sheet", f"the hidden sheet {name!r} was left out")
            continue
        _read(package, found.target, values).write(name, builder)


def _values(package: Package, workbook: etree._Element) -> Values:
    styles, properties = package.related(package.main, "styles"), child(workbook, "x:workbookPr")
    return Values(
        list(_strings(package)),
        read_formats(package.root(styles) if styles else None),
        properties is not None and properties.get("date1904") in ("1", "true"),
    )


def _strings(package: Package) -> Iterator[str]:
    part = package.related(package.main, "sharedStrings")
    if part is None:
        return
    with package.open(part) as stream:
        for element in stream_elements(stream, ("si",), frozenset({"sst"})):
            yield shared_text(element)


def _read(package: Package, part: str, values: Values) -> Sheet:
    sheet = Sheet()
    with package.open(part) as stream:
        for element in stream_elements(stream, ("row", "mergeCell"), frozenset({"sheetData", "mergeCells"})):
            if kind_of(element) == "x:row":
                _row(element, values, sheet)
            else:
                first, _, last = element.get("ref", "").partition(":")
                sheet.merge(_place(first), _place(last or first))
    return sheet


def _row(row: etree._Element, values: Values, sheet: Sheet) -> None:
    """Take the cells of a row over; those without an address stand behind the one before."""
    number = row.get("r", "")
    sheet.row(int(number) if number.isdecimal() and len(number) < 10 else None)
    column = -1
    for cell in row:
        if kind_of(cell) == "x:c":
            place = _place(cell.get("r", ""))
            column = column + 1 if place is None else place[0]
            sheet.cell(column, values.text(cell).strip(), is_text=cell.get("t", "n") in ("s", "str", "inlineStr"))


def _place(address: str) -> tuple[int, int] | None:
    """Return (column from 0, row from 1) of an address like `BC12`."""
    letters = address.rstrip("0123456789")
    digits = address[len(letters) :]
    if not (0 < len(letters) <= _MAX_COLUMN_LETTERS and letters.isascii() and letters.isalpha()):
        return None
    column = 0
    for letter in letters.upper():
        column = column * 26 + ord(letter) - ord("A") + 1
    return column - 1, int(digits) if digits.isdecimal() and len(digits) < 10 else 1
