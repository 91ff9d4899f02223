"""From a PDF file's bytes to a document: which pages can be read, and what they say."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Protocol

import pypdfium2 as pdfium
from pypdfium2 import raw

from services.ingestion.parsing.builder import DocumentBuilder
from services.ingestion.parsing.limits import Corrupt, Encrypted, NoText, ParseLimits, TooManyPages
from services.ingestion.parsing.pdf.glyphs import read_page
from services.ingestion.parsing.pdf.headings import Bookmark, find_headings, read_outline
from services.ingestion.parsing.pdf.joining import Joiner
from services.ingestion.parsing.pdf.layout import read_lines
from services.ingestion.parsing.pdf.running import without_running_lines
from services.ingestion.parsing.pdf.segments import Line, Page, Segment
from services.ingestion.parsing.pdf.tables import by_tables, table_rows
from services.ingestion.text import TextTooLarge

_UNREADABLE: Final = 0.3  # of a page's glyphs say not which character they are
_SCAN: Final = (
    "no page has text: it looks like a scan or is blank. Reading scans (OCR) is off; "
    "whoever runs the service can turn it on with CHATMIND_OCR__ENABLED=true"
)
_MAX_NAMED_PAGES: Final = 20


class PictureReader(Protocol):
    """Reads a page from its picture: `ocr.PictureReader`."""

    def read(self, page: pdfium.PdfPage) -> list[Segment]: ...


def parse_pdf(
    data: bytes, builder: DocumentBuilder, limits: ParseLimits, pictures: PictureReader | None = None
) -> None:
    """Put the text of a PDF file into the builder; pages without text are read from their pictures, if there is a reader.

    Raises Encrypted, Corrupt, TooManyPages, NoText when no page has text, and TextTooLarge.
    """
    with _opened(data) as document:
        if len(document) > limits.max_pages:
            raise TooManyPages(f"the file has {len(document)} pages; at most {limits.max_pages} are read")
        pages = list(_pages(document, limits, pictures))
        outline = _outline(document)
    if all(page is None for page in pages):
        raise Corrupt("the file is damaged: none of its pages can be read")
    if not any(page and (page.segments or page.asides) for page in pages):
        raise NoText(_SCAN if pictures is None else "no page has text, and in the pictures of the pages none was found")
    _tell(pages, builder)
    _write([page or Page(()) for page in pages], outline, builder)


@contextmanager
def _opened(data: bytes) -> Iterator[pdfium.PdfDocument]:
    try:
        document = pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        if error.err_code in (raw.FPDF_ERR_PASSWORD, raw.FPDF_ERR_SECURITY):
            raise Encrypted("the file is encrypted: upload it without its password") from error
        raise Corrupt("the file is damaged or not a PDF file") from error
    try:
        yield document
    finally:
        document.close()


def _pages(document: pdfium.PdfDocument, limits: ParseLimits, pictures: PictureReader | None) -> Iterator[Page | None]:
    """Yield what is written on each page; None where a page can't be read."""
    chars = 0
    for index in range(len(document)):
        page = None
        with suppress(pdfium.PdfiumError):
            loaded = document[index]
            try:
                page = read_page(loaded)
                if pictures and not page.segments and not page.asides:
                    page = Page(pictures.read(loaded), from_picture=True)
            finally:
                loaded.close()
        if page:
            chars += sum(len(segment.text) for segment in page.segments)
        if chars > limits.max_chars:
            raise TextTooLarge(f"the text has more than {limits.max_chars} characters")
        yield page


def _outline(document: pdfium.PdfDocument) -> list[Bookmark]:
    try:
        return read_outline(document)
    except (pdfium.PdfiumError, ValueError):  # damaged: the text may be sound
        return []


def _tell(pages: Sequence[Page | None], builder: DocumentBuilder) -> None:
    damaged = [number for number, page in enumerate(pages, start=1) if page is None]
    silent = [number for number, page in enumerate(pages, start=1) if page and not page.segments and not page.asides]
    garbled = [number for number, page in enumerate(pages, start=1) if page and page.unreadable > _UNREADABLE]
    seen = [number for number, page in enumerate(pages, start=1) if page and page.from_picture and page.segments]
    if seen:
        builder.note("page_from_picture", f"{_named(seen)} read by OCR: expect errors")
    if damaged:
        builder.note("page_damaged", f"{_named(damaged)} can't be read: the file is damaged")
    if silent:
        builder.note("page_without_text", f"{_named(silent)} without text: pictures or blank")
    if garbled:
        builder.note("page_unreadable", f"{_named(garbled)} in fonts that don't say which characters they show")


def _named(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_MAX_NAMED_PAGES]))
    more = f" and {len(numbers) - _MAX_NAMED_PAGES} more" if len(numbers) > _MAX_NAMED_PAGES else ""
    return f"page{'s' if len(numbers) > 1 else ''} {shown}{more}"


def _write(pages: Sequence[Page], outline: Sequence[Bookmark], builder: DocumentBuilder) -> None:
    lines = [read_lines(segments, number) for number, segments in enumerate(without_running_lines(pages))]
    headings = find_headings(lines, outline)
    joiner = Joiner([line for page in lines for line in page])
    waiting: list[Line] = []
    for number, page in enumerate(lines):
        index = 0
        while index < len(page):
            heading = headings.get((number, index))
            if heading:
                _write_body(waiting, joiner, builder)
                waiting = []
                builder.page(number + 1)
                builder.heading(heading.level, heading.text)
            else:
                waiting.append(page[index])
            index += heading.lines if heading else 1
    _write_body(waiting, joiner, builder)
    builder.page(None)  # a stamp across the first page doesn't put the last section on it
    for aside in dict.fromkeys(aside for page in pages for aside in page.asides):
        builder.paragraph(aside)


def _write_body(lines: Sequence[Line], joiner: Joiner, builder: DocumentBuilder) -> None:
    for is_table, part in by_tables(lines):
        if is_table:
            builder.page(part[0].page + 1)
            builder.table(table_rows(part))
            continue
        for paragraph in joiner.paragraphs(part):
            builder.page(paragraph.page)
            builder.paragraph(paragraph.text, paragraph.turns)
