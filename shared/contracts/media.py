"""The document types that can be ingested, by file name and declared content type.

The name decides whether a file is taken at all; what it really is, ingestion finds out by its content.
"""

import re
from pathlib import PurePosixPath
from typing import Final

MARKDOWN: Final = "text/markdown"
PLAIN_TEXT: Final = "text/plain"
HTML: Final = "text/html"
CSV: Final = "text/csv"
TSV: Final = "text/tab-separated-values"
PDF: Final = "application/pdf"
DOCX: Final = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PPTX: Final = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
XLSX: Final = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
EPUB: Final = "application/epub+zip"

SUFFIXES: Final[dict[str, str]] = {
    **dict.fromkeys((".md", ".markdown"), MARKDOWN),
    **dict.fromkeys((".txt", ".text", ".log", ".rst", ".adoc", ".org", ".tex"), PLAIN_TEXT),
    **dict.fromkeys((".json", ".jsonl", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".sql"), PLAIN_TEXT),
    **dict.fromkeys((".html", ".htm", ".xhtml"), HTML),
    ".csv": CSV,
    ".tsv": TSV,
    ".pdf": PDF,
    **dict.fromkeys((".docx", ".docm", ".dotx"), DOCX),
    **dict.fromkeys((".pptx", ".pptm", ".ppsx"), PPTX),
    **dict.fromkeys((".xlsx", ".xlsm"), XLSX),
    ".epub": EPUB,
}
SUPPORTED_MEDIA_TYPES: Final[tuple[str, ...]] = tuple(dict.fromkeys(SUFFIXES.values()))
SUPPORTED_FORMATS: Final = (
    "Markdown (.md, .markdown), plain text (.txt and other text files), HTML (.html), PDF (.pdf), Word (.docx), "
    "PowerPoint (.pptx), Excel (.xlsx), tables (.csv, .tsv), EPUB (.epub)"
)

_CONTENT_TYPES: Final[dict[str, str]] = {
    **{media_type: media_type for media_type in SUPPORTED_MEDIA_TYPES},
    "text/x-markdown": MARKDOWN,
    "application/xhtml+xml": HTML,
}
# Names that promise another format: a client that calls these text/plain is mistaken, and is told at the door.
_OTHER_FORMATS: Final = re.compile(
    r"\.(doc|dot|ppt|pps|xls|xlsb|rtf|od[tsp]|pages|numbers|key|wps|mobi|azw3|djvu|chm|msg|eml|zip|gz|tgz|bz2|xz|7z|rar|tar"
    r"|jar|exe|dll|so|iso|bin|db|sqlite|parquet|png|jpe?g|gif|webp|bmp|tiff?|svg|heic|psd|mp[34]|wav|flac|avi|mov|mkv|webm)",
    re.IGNORECASE,
)


def supported_media_type(filename: str, content_type: str | None) -> str | None:
    """Return the media type to ingest the file as, or None where the type isn't supported.

    The name decides where it says something (browsers guess content types badly); the declared type decides for names
    without a telling suffix, so that `README` or `main.rs` sent as text/plain are taken.
    """
    suffix = PurePosixPath(filename).suffix.lower()
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    if _OTHER_FORMATS.fullmatch(suffix) or content_type is None:
        return None
    return _CONTENT_TYPES.get(content_type.partition(";")[0].strip().lower())
