from importlib.util import find_spec

import pytest
from pydantic import ValidationError

from services.ingestion.parsing import ocr
from services.ingestion.parsing.builder import DocumentBuilder
from services.ingestion.parsing.limits import NoText, ParseLimits
from services.ingestion.parsing.ocr import OcrSettings
from services.ingestion.parsing.pdf import parse_pdf
from services.ingestion.parsing.pdf.segments import Segment
from tests.support.pdf_files import PdfFile, lines


class OneLine:
    """Sees the same line in every picture."""

    def read(self, page: object) -> list[Segment]:
        return [Segment("seen in the picture", 72, 300, 700, 712, 9)]


def builder() -> DocumentBuilder:
    return DocumentBuilder(lambda text: text, ParseLimits())


def test_the_error_of_a_scan_says_how_to_turn_it_on() -> None:
    with pytest.raises(NoText, match=r"scan.*OCR.*off.*CHATMIND_OCR__ENABLED=true"):
        parse_pdf(PdfFile([[]]).to_bytes(), builder(), ParseLimits())


def test_only_pages_without_text_are_read_from_pictures() -> None:
    read = builder()
    parse_pdf(PdfFile([lines("text of the file"), []]).to_bytes(), read, ParseLimits(), OneLine())
    document = read.build()
    assert document.text.split("\n\n") == ["text of the file", "seen in the picture"]
    assert [(note.code, note.message) for note in document.notes] == [
        ("page_from_picture", "page 2 read by OCR: expect errors")
    ]


def test_without_the_extra_it_cannot_be_turned_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "find_spec", lambda name: None)
    with pytest.raises(ValidationError, match="make ocr"):
        OcrSettings(enabled=True)
    assert not OcrSettings().enabled


@pytest.mark.skipif(find_spec("rapidocr") is None, reason="the extra `ocr` isn't installed")
def test_a_line_is_read_from_its_picture() -> None:
    import pypdfium2 as pdfium

    document = pdfium.PdfDocument(PdfFile([lines("Reading pictures of text", size=20)]).to_bytes())
    (segment,) = ocr.PictureReader(OcrSettings(enabled=True)).read(document[0])
    assert segment.text.replace(" ", "") == "Readingpicturesoftext"
    assert segment.left == pytest.approx(72, abs=5)
