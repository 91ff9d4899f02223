"""What a document may cost, and the errors that say it costs more."""

from pydantic import BaseModel, ConfigDict, Field

from services.ingestion.text import DocumentError


class ParseLimits(BaseModel):
    """Bounds of one document's parsing: first those of its text, then those of the process that parses it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_chars: int = Field(default=20_000_000, gt=0)
    max_line_chars: int = Field(default=1024 * 1024, gt=0)
    max_headings: int = Field(default=20_000, gt=0)
    max_pieces: int = Field(default=100_000, gt=0)
    max_pages: int = Field(default=2000, gt=0)

    memory_bytes: int = Field(default=1024**3, gt=0)
    cpu_seconds: int = Field(default=60, gt=0)
    wall_seconds: float = Field(default=90, gt=0)
    max_output_bytes: int = Field(default=256 * 1024**2, gt=0)


class TooManyHeadings(DocumentError):
    """The document has more headings than the limit."""

    code = "too_many_headings"


class LineTooLong(DocumentError):
    """A line of the document is longer than the limit."""

    code = "line_too_long"


class TooManyPieces(DocumentError):
    """The document would be cut into more pieces than the limit."""

    code = "too_many_chunks"


class TooManyEntries(DocumentError):
    """The file is made of more parts, sheets or slides than the limit."""

    code = "too_many_entries"


class TooManyPages(DocumentError):
    """The document has more pages than the limit."""

    code = "too_many_pages"


class UnsupportedMediaType(DocumentError):
    """The file's type is not one of those that can be read."""

    code = "unsupported_media_type"


class NoText(DocumentError):
    """The file is sound, but there is no text in it: blank, or a picture of text."""

    code = "no_text"


class Encrypted(DocumentError):
    """The file can't be opened without its password."""

    code = "encrypted"


class Corrupt(DocumentError):
    """The file is damaged, or not what it says it is."""

    code = "corrupt"


class ParseTimeout(DocumentError):
    """Parsing took more time than the limit, of the processor or by the clock."""

    code = "parse_timeout"


class ParseMemory(DocumentError):
    """Parsing needed more memory than the limit."""

    code = "parse_memory"


class ParseCrashed(DocumentError):
    """The parser died, or failed in a way that no other code describes."""

    code = "parse_crashed"
