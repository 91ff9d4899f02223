"""Plain text: one section without a heading. Its paragraphs are found by splitting."""

from services.ingestion.sections import ParsedDocument, build_sections


def parse_plain(text: str) -> ParsedDocument:
    """Return the text as one section."""
    return ParsedDocument(text, tuple(build_sections(text, [])))
