"""Word files (.docx), straight from their XML: both families of namespaces, text boxes, notes; a paragraph at a time.

Left out: running heads and feet, page numbers, tables of contents, tracked deletions, hidden text, comments. Automatic numbers
stand nowhere in the file.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from lxml import etree

from services.ingestion.parsing.archive import Archive
from services.ingestion.parsing.builder import DocumentBuilder
from services.ingestion.parsing.docx_styles import Styles, look_of
from services.ingestion.parsing.docx_text import ParagraphText, paragraphs_in, read_paragraph
from services.ingestion.parsing.grid import Grid
from services.ingestion.parsing.ooxml import Package, alternatives, attribute, child, is_on, kind_of
from services.ingestion.parsing.safe_xml import stream_elements

_BLOCKS: Final = ("p", "tbl", "sdt", "customXml", "ins", "moveTo", "AlternateContent")
_CONTAINERS: Final = frozenset({"w:sdt", "w:sdtContent", "w:customXml", "w:ins", "w:moveTo", "w:smartTag"})
_MAX_CELL_CHARS: Final = 1_500  # a longer cell is part of a page that is laid out by tables
_NOT_NOTES: Final = frozenset({"separator", "continuationSeparator", "continuationNotice"})


def parse_docx(archive: Archive, builder: DocumentBuilder) -> None:
    """Read a Word file into the builder. Raises Corrupt, Encrypted, TextTooLarge, TooManyHeadings."""
    package = Package(archive)
    part = package.main
    reader = _Reader(package, part, builder)
    with package.open(part) as stream:
        for element in stream_elements(stream, _BLOCKS, frozenset({"body"})):
            reader.block(element)


class _Reader:
    def __init__(self, package: Package, part: str, builder: DocumentBuilder) -> None:
        self._package = package
        self._part = part
        self._builder = builder
        styles = package.related(part, "styles")
        self._styles = Styles(package.root(styles) if styles else None)
        self._notes: dict[str, dict[str, str]] = {}
        self._note_count = 0

    def block(self, element: etree._Element) -> None:
        kind = kind_of(element)
        if kind == "w:p":
            self._paragraph(element)
        elif kind == "w:tbl":
            self._table(element)
        elif kind == "mc:AlternateContent":
            branch = alternatives(element)
            self._blocks(() if branch is None else branch)
        elif kind in _CONTAINERS:
            self._blocks(element)

    def _blocks(self, elements: Iterable[etree._Element]) -> None:
        for element in elements:
            self.block(element)

    def _paragraph(self, paragraph: etree._Element) -> None:
        text = self._read(paragraph)
        properties = child(paragraph, "w:pPr")
        style = None if properties is None else attribute(child(properties, "w:pStyle"), "val")
        look = look_of(properties).over(self._styles.look(style))
        if look.is_contents:
            return
        if look.heading is not None and look.heading >= 0:
            self._builder.heading(look.heading, str(text))
        elif look.list_depth is not None and look.list_depth >= 0:
            self._builder.item(str(text), look.list_depth)
        else:
            self._builder.paragraph(str(text))
        self._what_hangs_on([text])

    def _read(self, paragraph: etree._Element) -> ParagraphText:
        text = read_paragraph(paragraph, self._note_count + 1)
        self._note_count += len(text.notes)
        return text

    def _what_hangs_on(self, texts: Iterable[ParagraphText]) -> None:
        """Add the notes and text boxes of paragraphs behind these."""
        for text in texts:
            for box in text.boxes:
                self._blocks(box)
            for number, (kind, note) in enumerate(text.notes, text.first_note):
                words = self._notes_of(kind).get(note)
                if words:
                    self._builder.paragraph(f"[^{number}]: {words}")

    def _notes_of(self, kind: str) -> dict[str, str]:
        if kind not in self._notes:
            source = self._package.related(self._part, kind)
            notes = () if source is None else self._package.root(source)
            self._notes[kind] = {
                attribute(note, "id") or "": " ".join(str(read_paragraph(one)).strip() for one in paragraphs_in(note))
                for note in notes
                if attribute(note, "type") not in _NOT_NOTES
            }
        return self._notes[kind]

    def _table(self, table: etree._Element) -> None:
        rows = [row for row in _inside(table, "w:tr") if child(row, "w:trPr", "w:del") is None]
        cells = [list(_inside(row, "w:tc")) for row in rows]
        if _is_layout(table, cells):
            for cell in (cell for row in cells for cell in row):
                self._blocks(cell)
            return
        count = self._note_count
        texts = [[[self._read(one) for one in paragraphs_in(cell)] for cell in row] for row in cells]
        if any(sum(len(str(one)) for one in cell) > _MAX_CELL_CHARS for row in texts for cell in row):
            self._note_count = count
            for cell in (cell for row in cells for cell in row):
                self._blocks(cell)
            return
        header_rows = sum(1 for row in rows if is_on(child(row, "w:trPr", "w:tblHeader")))
        self._builder.table(_grid(rows, cells, texts).finish(header_rows))
        self._what_hangs_on(one for row in texts for cell in row for one in cell)


def _inside(parent: etree._Element, kind: str) -> Iterator[etree._Element]:
    """Yield the rows of a table or the cells of a row, also those within content controls."""
    for element in parent:
        found = kind_of(element)
        if found == kind:
            yield element
        elif found in _CONTAINERS:
            yield from _inside(element, kind)


def _is_layout(table: etree._Element, cells: list[list[etree._Element]]) -> bool:
    """Whether the table is a frame (a single column) or holds tables itself."""
    if all(len(row) <= 1 for row in cells):
        return True
    inner = table.iter(table.tag)
    next(inner)
    return next(inner, None) is not None


def _grid(
    rows: list[etree._Element], cells: list[list[etree._Element]], texts: list[list[list[ParagraphText]]]
) -> Grid:
    grid = Grid()
    above: dict[int, str] = {}
    for row, row_cells, row_texts in zip(rows, cells, texts, strict=True):
        grid.row()
        column = _number(child(row, "w:trPr", "w:gridBefore"), 0)
        if column:
            grid.cell("", columns=column)
        for cell, found in zip(row_cells, row_texts, strict=True):
            text = "\n".join(str(one) for one in found)
            if _is_continued(cell):
                text = text.strip() or above.get(column, "")
            above[column] = text
            columns = _number(child(cell, "w:tcPr", "w:gridSpan"), 1)
            grid.cell(text, columns=columns)
            column += columns
    return grid


def _is_continued(cell: etree._Element) -> bool:
    merge = child(cell, "w:tcPr", "w:vMerge")
    return merge is not None and attribute(merge, "val") in (None, "continue")


def _number(element: etree._Element | None, default: int) -> int:
    value = attribute(element, "val") or ""
    return min(int(value), 1_000) if value.isdecimal() and len(value) < 10 else default
