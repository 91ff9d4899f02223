"""Small Office and EPUB files, zipped in memory from the XML that a test is about."""

from collections.abc import Mapping
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile

OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
SLIDES = "http://schemas.openxmlformats.org/presentationml/2006/main"
DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"
SHEETS = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
_NAMES = (
    f'xmlns:w="{WORD}" xmlns:r="{OFFICE}" xmlns:p="{SLIDES}" xmlns:a="{DRAWING}" xmlns="{SHEETS}" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" xmlns:v="urn:schemas-microsoft-com:vml" '
    'xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape"'
)


def zipped(parts: Mapping[str, str | bytes]) -> bytes:
    """A ZIP file of these parts."""
    buffer = BytesIO()
    with ZipFile(buffer, "w", ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def relationships(*targets: tuple[str, str]) -> str:
    """A part of relationships rId1, rId2, ...; each is (kind, target)."""
    entries = "".join(
        f'<Relationship Id="rId{number}" Type="{OFFICE}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, 1)
    )
    return f'<Relationships xmlns="{_PACKAGE}">{entries}</Relationships>'


def element(name: str, inside: str) -> str:
    """A root element with all namespaces declared."""
    return f"<{name} {_NAMES}>{inside}</{name}>"


def docx(body: str, *, styles: str = "", footnotes: str = "", parts: Mapping[str, str | bytes] | None = None) -> bytes:
    """A Word file with this body."""
    return zipped(
        {
            "[Content_Types].xml": "<Types/>",
            "_rels/.rels": relationships(("officeDocument", "word/document.xml")),
            "word/_rels/document.xml.rels": relationships(("styles", "styles.xml"), ("footnotes", "footnotes.xml")),
            "word/document.xml": element("w:document", f"<w:body>{body}</w:body>"),
            "word/styles.xml": element("w:styles", styles),
            "word/footnotes.xml": element("w:footnotes", footnotes),
            **(parts or {}),
        }
    )


def run(text: str) -> str:
    """A run of text in Word."""
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def paragraph(inside: str, *, style: str = "", properties: str = "") -> str:
    """A paragraph in Word; `inside` is text, or runs."""
    named = f'<w:pStyle w:val="{style}"/>' if style else ""
    return f"<w:p><w:pPr>{named}{properties}</w:pPr>{inside if inside.startswith('<') else run(inside)}</w:p>"


def pptx(*slides: str, notes: str = "") -> bytes:
    """A presentation of these slides (each the inside of a shape tree), the first with notes. They are shown in reverse."""
    order = "".join(f'<p:sldId id="{256 + n}" r:id="rId{n}"/>' for n in range(len(slides), 0, -1))
    parts: dict[str, str | bytes] = {
        "_rels/.rels": relationships(("officeDocument", "ppt/presentation.xml")),
        "ppt/presentation.xml": element("p:presentation", f"<p:sldIdLst>{order}</p:sldIdLst>"),
        "ppt/_rels/presentation.xml.rels": relationships(
            *(("slide", f"slides/slide{n}.xml") for n in range(1, len(slides) + 1))
        ),
        "ppt/slides/_rels/slide1.xml.rels": relationships(("notesSlide", "../notesSlides/notes1.xml")),
        "ppt/notesSlides/notes1.xml": element("p:notes", f"<p:cSld><p:spTree>{notes}</p:spTree></p:cSld>"),
    }
    for number, slide in enumerate(slides, 1):
        parts[f"ppt/slides/slide{number}.xml"] = element("p:sld", f"<p:cSld><p:spTree>{slide}</p:spTree></p:cSld>")
    return zipped(parts)


def shape(*paragraphs: str, placeholder: str | None = None, level: int = 0) -> str:
    """A shape on a slide."""
    place = f'<p:ph type="{placeholder}"/>' if placeholder else ""
    text = "".join(f'<a:p><a:pPr lvl="{level}"/><a:r><a:t>{one}</a:t></a:r></a:p>' for one in paragraphs)
    return f"<p:sp><p:nvSpPr><p:nvPr>{place}</p:nvPr></p:nvSpPr><p:txBody>{text}</p:txBody></p:sp>"


def xlsx(*sheets: tuple[str, str], strings: str = "", styles: str = "", hidden: str = "") -> bytes:
    """A workbook of (name, rows) sheets; the one with the name `hidden` is."""
    entries = "".join(
        f'<sheet name="{name}" sheetId="{n}" r:id="rId{n}"{" state=" + chr(34) + "hidden" + chr(34) if name == hidden else ""}/>'
        for n, (name, _) in enumerate(sheets, 1)
    )
    targets = [("worksheet", f"worksheets/sheet{n}.xml") for n in range(1, len(sheets) + 1)]
    parts: dict[str, str | bytes] = {
        "_rels/.rels": relationships(("officeDocument", "/xl/workbook.xml")),
        "xl/workbook.xml": element("workbook", f"<sheets>{entries}</sheets>"),
        "xl/_rels/workbook.xml.rels": relationships(
            *targets, ("sharedStrings", "sharedStrings.xml"), ("styles", "styles.xml")
        ),
        "xl/sharedStrings.xml": element("sst", strings),
        "xl/styles.xml": element("styleSheet", styles),
    }
    for number, (_, rows) in enumerate(sheets, 1):
        parts[f"xl/worksheets/sheet{number}.xml"] = element("worksheet", rows)
    return zipped(parts)


def epub(pages: dict[str, str], *, nav: str = "", parts: Mapping[str, str | bytes] | None = None) -> bytes:
    """A book of these pages (the inside of `body`), in this order, with a table of contents in the spine."""
    names = list(pages)
    items = "".join(f'<item id="{name}" href="{name}.xhtml" media-type="application/xhtml+xml"/>' for name in names)
    spine = "".join(f'<itemref idref="{name}"/>' for name in ("nav", *names))
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>',
            "OEBPS/book.opf": (
                '<package xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>The Book</dc:title></metadata>'
                '<manifest><item id="nav" href="nav.xhtml" properties="nav" media-type="application/xhtml+xml"/>'
                f"{items}</manifest><spine>{spine}</spine></package>"
            ),
            "OEBPS/nav.xhtml": _xhtml(f"<nav>{nav}</nav>"),
            **{f"OEBPS/{name}.xhtml": _xhtml(body) for name, body in pages.items()},
            **(parts or {}),
        }
    )


def _xhtml(body: str) -> str:
    head = '<?xml version="1.0" encoding="utf-8"?><!DOCTYPE html><html xmlns="http://www.w3.org/1999/xhtml"><head><title/></head>'
    return f"{head}<body>{body}</body></html>"
