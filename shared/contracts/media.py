"""The document types that can be ingested, by file name and declared content type."""

import re
from pathlib import PurePosixPath
from typing import Final

MARKDOWN: Final = "text/markdown"
PLAIN_TEXT: Final = "text/plain"

SUFFIXES: Final[dict[str, str]] = {
    ".md": MARKDOWN,
    ".markdown": MARKDOWN,
    ".txt": PLAIN_TEXT,
}
SUPPORTED_MEDIA_TYPES: Final[tuple[str, ...]] = tuple(dict.fromkeys(SUFFIXES.values()))
SUPPORTED_FORMATS: Final = "Markdown (.md, .markdown), plain text (.txt)"

_CONTENT_TYPES: Final[dict[str, str]] = {MARKDOWN: MARKDOWN, "text/x-markdown": MARKDOWN, PLAIN_TEXT: PLAIN_TEXT}
# Names that promise another format: a client that calls these text/plain is mistaken, and is told at the door.
_OTHER_FORMATS: Final = re.compile(
    r"\.(pdf|docx?|pptx?|xlsx?|odt|rtf|epub|html?|zip|gz|png|jpe?g|gif|webp)", re.IGNORECASE
)


def supported_media_type(filename: str, content_type: str | None) -> str | None:
    """Return the media type to ingest the file as, or None where the type isn't supported.

    The name decides where it says something (browsers guess content types badly); the declared type decides for names
    without a telling suffix, so that `README` or `server.log` sent as text/plain are taken.
    """
    suffix = PurePosixPath(filename).suffix.lower()
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    if _OTHER_FORMATS.fullmatch(suffix) or content_type is None:
        return None
    return _CONTENT_TYPES.get(content_type.partition(";")[0].strip().lower())
