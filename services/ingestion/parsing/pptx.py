"""PowerPoint files (.pptx), straight from their XML: a section a slide, with its tables, diagrams and notes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from lxml import etree

from services.ingestion.parsing.archive import Archive
from services.ingestion.parsing.builder import DocumentBuilder
from services.ingestion.parsing.grid import Grid
from services.ingestion.parsing.ooxml import Package, alternatives, attribute, child, kind_of

_TITLES: Final = frozenset({"title", "ctrTitle"})
_FURNITURE: Final = frozenset({"sldNum", "dt", "ftr", "hdr", "sldImg"})
_BODIES: Final = frozenset({"body", "obj", "subTitle", "tbl"})
_MAX_HEADING_CHARS: Final = 200
_MAX_DEPTH: Final = 8


def parse_pptx(archive: Archive, builder: DocumentBuilder) -> None:
    """Read a presentation into the builder, in the order in which it is shown. Raises what Archive raises, and TooManyHeadings."""
    package = Package(archive)
    for number, part in enumerate(_slides(package), 1):
        builder.page(number)
        _Slide(package, part, builder).read(number)


def _slides(package: Package) -> Iterator[str]:
    relationships = package.relationships(package.main)
    shown = child(package.root(package.main), "p:sldIdLst")
    for entry in () if shown is None else shown:
        # Two attributes are called id: the slide's own number, which is in no namespace, and the relationship's.
        name = next((str(value) for key, value in entry.attrib.items() if str(key).endswith("}id")), "")
        if name in relationships:
            yield relationships[name].target


@dataclass(frozen=True, slots=True)
class _Paragraph:
    text: str
    depth: int


class _Slide:
    def __init__(self, package: Package, part: str, builder: DocumentBuilder) -> None:
        self._package = package
        self._part = part
        self._builder = builder

    def read(self, number: int) -> None:
        """Add the slide: its title, or its number where it has none, then what is on it, then its notes."""
        shapes = list(_shapes(self._package.root(self._part)))
        titles = dict.fromkeys(shape for shape in shapes if _placeholder(shape) in _TITLES)
        title = " ".join(one.text for shape in titles for one in _paragraphs(shape)).strip()
        self._builder.heading(1, title if 0 < len(title) <= _MAX_HEADING_CHARS else f"Slide {number}")
        for shape in shapes:
            if shape not in titles or len(title) > _MAX_HEADING_CHARS:
                self._shape(shape)
        self._notes()

    def _shape(self, shape: etree._Element) -> None:
        placeholder = _placeholder(shape)
        if placeholder in _FURNITURE:
            return
        table = next(shape.iter("{*}tbl"), None)
        if kind_of(shape) == "p:graphicFrame":
            if table is not None:
                self._builder.table(_table(table))
            else:
                self._diagram(shape)
            return
        for paragraph in _paragraphs(shape):
            if placeholder in _BODIES:
                self._builder.item(paragraph.text, paragraph.depth)
            else:
                self._builder.paragraph(paragraph.text)

    def _diagram(self, frame: etree._Element) -> None:
        """Add the words of a SmartArt diagram, which stand in a part of their own."""
        reference = next(frame.iter("{*}relIds"), None)
        found = self._package.relationships(self._part).get(attribute(reference, "dm") or "")
        if found is None:
            return
        for point in self._package.root(found.target).iter("{*}pt"):
            for paragraph in _paragraphs(point):
                self._builder.item(paragraph.text)

    def _notes(self) -> None:
        notes = self._package.related(self._part, "notesSlide")
        if notes is None:
            return
        for shape in _shapes(self._package.root(notes)):
            if _placeholder(shape) not in _FURNITURE:
                for paragraph in _paragraphs(shape):
                    self._builder.paragraph(paragraph.text)


def _shapes(root: etree._Element) -> Iterator[etree._Element]:
    """Yield the shapes of a slide in order, those in groups too."""
    tree = child(root, "p:cSld", "p:spTree")
    if tree is not None:
        yield from _inside(tree)


def _inside(group: etree._Element) -> Iterator[etree._Element]:
    for element in group:
        match kind_of(element):
            case "p:sp" | "p:graphicFrame" | "p:cxnSp":
                yield element
            case "p:grpSp":
                yield from _inside(element)
            case "mc:AlternateContent":
                branch = alternatives(element)
                if branch is not None:
                    yield from _inside(branch)


def _placeholder(shape: etree._Element) -> str | None:
    """Return the kind of a placeholder (`obj` where none is given), None for another shape."""
    found = child(shape, "p:nvSpPr", "p:nvPr", "p:ph")
    return None if found is None else found.get("type", "obj")


def _paragraphs(element: etree._Element) -> Iterator[_Paragraph]:
    for paragraph in element.iter("{*}p"):
        if kind_of(paragraph) != "a:p":
            continue
        text = "".join(_words(paragraph)).strip()
        if text:
            level = attribute(child(paragraph, "a:pPr"), "lvl") or "0"
            yield _Paragraph(text, min(int(level[:4]), _MAX_DEPTH) if level.isdecimal() else 0)


def _words(paragraph: etree._Element) -> Iterator[str]:
    for run in paragraph:
        match kind_of(run):
            case "a:r":
                yield from (text.text or "" for text in run if kind_of(text) == "a:t")
            case "a:fld" if not (run.get("type") or "").startswith("slidenum"):
                yield from (text.text or "" for text in run if kind_of(text) == "a:t")
            case "a:br":
                yield "\n"


def _table(table: etree._Element) -> list[list[str]]:
    grid = Grid()
    for row in (one for one in table if kind_of(one) == "a:tr"):
        grid.row()
        for cell in (one for one in row if kind_of(one) == "a:tc"):
            # A merged table has all of its cells; those that are covered by another are marked.
            if not (_is_true(cell, "hMerge") or _is_true(cell, "vMerge")):
                text = "\n".join(paragraph.text for paragraph in _paragraphs(cell))
                grid.cell(text, columns=_span(cell, "gridSpan"), rows=_span(cell, "rowSpan"))
    return grid.finish()


def _is_true(cell: etree._Element, name: str) -> bool:
    return cell.get(name) in ("1", "true")


def _span(cell: etree._Element, name: str) -> int:
    value = cell.get(name, "1")
    return int(value) if value.isdecimal() and len(value) < 10 else 1
