"""`parse`: the bytes of a file become a document of sections."""

from services.ingestion.cleaning import clean
from services.ingestion.parsing.limits import ParseLimits, UnsupportedMediaType
from services.ingestion.parsing.markdown import parse_markdown
from services.ingestion.parsing.plain import parse_plain
from services.ingestion.sections import ParsedDocument
from services.ingestion.text import EmptyDocument, decode
from shared.contracts.knowledge_settings import KnowledgeBaseSettings
from shared.contracts.media import MARKDOWN, SUPPORTED_FORMATS, supported_media_type

# Files that are often sent under a text file's name. A short signature may begin a text as well, so NUL or other binary
# data further on is left to `decode`.
_SIGNATURES = {
    b"%PDF-": "PDF",
    b"PK\x03\x04": "a ZIP-based format (Word, Excel, EPUB, ...)",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an old Microsoft Office format",
    b"\x89PNG\r\n": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"GIF8": "GIF",
    b"\x1f\x8b\x08": "gzip",
    b"{\\rtf": "RTF",
}


def parse(
    data: bytes,
    *,
    filename: str,
    media_type: str | None = None,
    settings: KnowledgeBaseSettings | None = None,
    limits: ParseLimits | None = None,
) -> ParsedDocument:
    """Decode, clean and cut a file into sections.

    Raises UnsupportedMediaType for all but the supported formats, by name and by content, EmptyDocument and the other
    DocumentErrors of `text.decode` and of the format's parser.
    """
    settings, limits = settings or KnowledgeBaseSettings(), limits or ParseLimits()
    chosen = _choose(data, filename, media_type)
    text = clean(decode(data, max_chars=limits.max_chars), settings.cleaning)
    if chosen == MARKDOWN:
        document = parse_markdown(text, limits=limits, heading_levels=settings.splitting.heading_levels)
    else:
        document = parse_plain(text)
    if not document.sections:
        raise EmptyDocument("the document holds no text")
    return document


def _choose(data: bytes, filename: str, media_type: str | None) -> str:
    chosen = supported_media_type(filename, media_type)
    if chosen is None:
        raise UnsupportedMediaType(f"{media_type or 'this type'} is not supported; supported are {SUPPORTED_FORMATS}")
    for signature, name in _SIGNATURES.items():
        if data.startswith(signature):
            raise UnsupportedMediaType(f"the content is {name}; supported are {SUPPORTED_FORMATS}")
    return chosen
