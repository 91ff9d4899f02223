"""What a file is, by its content first: names are wrong often, and a wrong parser makes rubbish of a sound file."""

from typing import Final

from services.ingestion.parsing.archive import Archive
from services.ingestion.parsing.limits import Corrupt, Encrypted, UnsupportedMediaType
from shared.contracts.media import (
    CSV,
    DOCX,
    EPUB,
    HTML,
    MARKDOWN,
    PDF,
    PLAIN_TEXT,
    PPTX,
    SUPPORTED_FORMATS,
    TSV,
    XLSX,
    supported_media_type,
)

_ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")
_OLE: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_PDF: Final = b"%PDF-"
_PDF_LEAD_BYTES: Final = 1024  # readers allow as much in front of a PDF's signature
# A short signature may begin a text as well, so NUL or other binary data further on is left to `decode`.
_SIGNATURES: Final = {
    b"\x89PNG\r\n": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"GIF8": "a GIF picture",
    b"II*\x00": "a TIFF picture",
    b"MM\x00*": "a TIFF picture",
    b"\x1f\x8b\x08": "a gzip archive",
    b"7z\xbc\xaf\x27\x1c": "a 7-Zip archive",
    b"Rar!\x1a\x07": "a RAR archive",
    b"{\\rtf": "RTF, which can be saved as .docx by Word",
}
_TEXT_FORMATS: Final = frozenset({MARKDOWN, PLAIN_TEXT, HTML, CSV, TSV})
_PACKAGES: Final = (("word/document", DOCX), ("ppt/presentation", PPTX), ("xl/workbook", XLSX))
_MODERN: Final = "save it as .docx, .pptx or .xlsx and upload that"
_OTHER_PACKAGES: Final = {
    "xl/workbook.bin": "a binary Excel workbook (.xlsb); save it as .xlsx and upload that",
    "content.xml": f"an OpenDocument file; {_MODERN}",
    "index/document.iwa": f"an Apple iWork file; {_MODERN}",
}
_PAGE_STARTS: Final = (b"<!doctype html", b"<html")


def detect(data: bytes, filename: str, declared: str | None) -> str:
    """Return the media type to read the file as, one of `SUPPORTED_MEDIA_TYPES`.

    Raises Encrypted, Corrupt (also for what isn't what its name says), UnsupportedMediaType.
    """
    promised = supported_media_type(filename, declared)
    if data.startswith(_ZIP):
        return _package(data, promised)
    if data.startswith(_OLE):
        raise _old_office(data)
    if _PDF in data[: _PDF_LEAD_BYTES if promised == PDF else len(_PDF)]:
        return PDF
    for signature, name in _SIGNATURES.items():
        if data.startswith(signature):
            raise _other(name, promised)
    if promised is None:
        raise UnsupportedMediaType(f"{declared or 'this type'} is not supported; supported are {SUPPORTED_FORMATS}")
    if promised not in _TEXT_FORMATS:
        raise Corrupt("the file is damaged, or not what its name says it is")
    return HTML if _is_page(data) and promised in (PLAIN_TEXT, MARKDOWN) else promised


def _package(data: bytes, promised: str | None) -> str:
    archive = Archive(data)
    for name, description in _OTHER_PACKAGES.items():
        if name in archive:
            raise UnsupportedMediaType(f"the content is {description}")
    if "mimetype" in archive and archive.read("mimetype", 100).strip() == EPUB.encode():
        return EPUB
    for beginning, media_type in _PACKAGES:
        if any(name.startswith(beginning) for name in archive):
            return media_type
    if "meta-inf/container.xml" in archive:
        return EPUB
    # Nothing says that the parts have their usual names; the format's parser will see.
    if "[content_types].xml" in archive and promised in (DOCX, PPTX, XLSX):
        return promised
    raise _other("a ZIP archive; upload the files in it", promised)


def _old_office(data: bytes) -> Encrypted | UnsupportedMediaType:
    """Return what is wrong with an OLE container: a file protected by a password, or one of Office before 2007."""
    if "EncryptedPackage".encode("utf-16-le") in data:
        return Encrypted("the file is protected by a password; save it without one and upload it again")
    return UnsupportedMediaType(f"the content is a file of an old Office version (.doc, .ppt, .xls); {_MODERN}")


def _other(name: str, promised: str | None) -> Corrupt | UnsupportedMediaType:
    if promised is None or promised in _TEXT_FORMATS:
        return UnsupportedMediaType(f"the content is {name}; supported are {SUPPORTED_FORMATS}")
    return Corrupt(f"the file is not what its name says; its content is {name}")


def _is_page(data: bytes) -> bool:
    start = data[:1024].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return start.startswith(_PAGE_STARTS)
