"""PDF: glyphs with places become paragraphs in reading order. `document.parse_pdf` is the way in."""

from services.ingestion.parsing.pdf.document import parse_pdf

__all__ = ["parse_pdf"]
