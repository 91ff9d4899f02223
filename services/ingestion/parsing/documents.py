"""`parse`: the bytes of a file become a document of sections."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from services.ingestion.cleaning import clean
from services.ingestion.parsing.archive import Archive
from services.ingestion.parsing.builder import DocumentBuilder
from services.ingestion.parsing.delimited import parse_delimited
from services.ingestion.parsing.detection import detect
from services.ingestion.parsing.docx import parse_docx
from services.ingestion.parsing.epub import parse_epub
from services.ingestion.parsing.html import parse_html
from services.ingestion.parsing.html_encoding import decode_page
from services.ingestion.parsing.limits import NoText, ParseLimits
from services.ingestion.parsing.markdown import parse_markdown
from services.ingestion.parsing.ocr import OcrSettings, PictureReader
from services.ingestion.parsing.pdf import parse_pdf
from services.ingestion.parsing.plain import parse_plain
from services.ingestion.parsing.pptx import parse_pptx
from services.ingestion.parsing.xlsx import parse_xlsx
from services.ingestion.sections import ParsedDocument
from services.ingestion.text import EmptyDocument, decode
from shared.contracts.knowledge_settings import KnowledgeBaseSettings
from shared.contracts.media import CSV, DOCX, EPUB, HTML, MARKDOWN, PDF, PLAIN_TEXT, PPTX, TSV, XLSX


def parse(
    data: bytes,
    *,
    filename: str,
    media_type: str | None = None,
    settings: KnowledgeBaseSettings | None = None,
    limits: ParseLimits | None = None,
    ocr: OcrSettings | None = None,
) -> ParsedDocument:
    """Decode, clean and cut a file into sections; its type is found by its content, then by its name.

    Raises EmptyDocument for a file without content, NoText for a sound one without text, UnsupportedMediaType,
    Encrypted, Corrupt, and the other DocumentErrors of `text.decode` and of the format's parser.
    """
    settings, limits = settings or KnowledgeBaseSettings(), limits or ParseLimits()
    if not data:
        raise EmptyDocument("the file is empty")
    found = detect(data, filename, media_type)
    readers: dict[str, _Reader] = {**_READERS, PDF: partial(_pdf, ocr=ocr or OcrSettings())}
    document = readers[found](data, settings, limits)
    if not document.sections:
        raise NoText(_WITHOUT_TEXT.get(found, "there is no text in the file"))
    return replace(document, media_type=found)


_TAG = re.compile(r"</?[A-Za-z]")
_Reader = Callable[[bytes, KnowledgeBaseSettings, ParseLimits], ParsedDocument]


def _markdown(data: bytes, settings: KnowledgeBaseSettings, limits: ParseLimits) -> ParsedDocument:
    text = clean(decode(data, max_chars=limits.max_chars), settings.cleaning)
    return parse_markdown(text, limits=limits, heading_levels=settings.splitting.heading_levels)


def _plain(data: bytes, settings: KnowledgeBaseSettings, limits: ParseLimits) -> ParsedDocument:
    text = clean(decode(data, max_chars=limits.max_chars), settings.cleaning)
    return parse_plain(text, heading_levels=settings.splitting.heading_levels)


def _page(data: bytes, settings: KnowledgeBaseSettings, limits: ParseLimits) -> ParsedDocument:
    text = decode_page(data, max_chars=limits.max_chars)
    if not _TAG.search(text):
        return _plain(text.encode(), settings, limits)
    builder = _builder(settings, limits)
    return builder.build(parse_html(text, builder, limits))


def _delimited(data: bytes, settings: KnowledgeBaseSettings, limits: ParseLimits) -> ParsedDocument:
    builder = _builder(settings, limits)
    if not parse_delimited(decode(data, max_chars=limits.max_chars), builder):
        return _plain(data, settings, limits)
    return builder.build()


def _package(
    read: Callable[[Archive, DocumentBuilder], str | None],
    data: bytes,
    settings: KnowledgeBaseSettings,
    limits: ParseLimits,
) -> ParsedDocument:
    builder = _builder(settings, limits)
    title = read(Archive(data), builder)
    return builder.build(title or "")


def _pdf(data: bytes, settings: KnowledgeBaseSettings, limits: ParseLimits, ocr: OcrSettings) -> ParsedDocument:
    builder = _builder(settings, limits)
    parse_pdf(data, builder, limits, PictureReader(ocr) if ocr.enabled else None)
    return builder.build()


def _builder(settings: KnowledgeBaseSettings, limits: ParseLimits) -> DocumentBuilder:
    rules = str if settings.cleaning == "off" else partial(clean, cleaning=settings.cleaning)
    return DocumentBuilder(rules, limits, settings.splitting.heading_levels)


_READERS: Final[dict[str, _Reader]] = {
    MARKDOWN: _markdown,
    PLAIN_TEXT: _plain,
    HTML: _page,
    CSV: _delimited,
    TSV: _delimited,
    DOCX: partial(_package, parse_docx),
    PPTX: partial(_package, parse_pptx),
    XLSX: partial(_package, parse_xlsx),
    EPUB: partial(_package, parse_epub),
}
_WITHOUT_TEXT: Final = {
    HTML: "the page has no text of its own; what scripts add to it in a browser can't be read",
}
