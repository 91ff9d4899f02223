import pytest

from services.ingestion.parsing.documents import parse
from services.ingestion.text import EmptyDocument
from shared.contracts.knowledge_settings import KnowledgeBaseSettings
from shared.contracts.media import supported_media_type


@pytest.mark.parametrize(
    ("filename", "content_type", "media_type"),
    [
        ("a.md", None, "text/markdown"),
        ("A.MARKDOWN", "application/octet-stream", "text/markdown"),
        ("a.txt", "text/html", "text/plain"),
        ("README", "text/plain; charset=utf-8", "text/plain"),
        ("server.log", "text/plain", "text/plain"),
        ("notes", "text/x-markdown", "text/markdown"),
        ("a.PDF", "text/plain", "application/pdf"),
        ("report", "application/pdf", "application/pdf"),
        ("page.htm", None, "text/html"),
        ("page", "application/xhtml+xml; charset=utf-8", "text/html"),
        ("a.csv", "application/vnd.ms-excel", "text/csv"),
        ("a.docx", None, "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("main.rs", "text/plain", "text/plain"),
        ("a.doc", "text/plain", None),
        ("a.png", "text/plain", None),
        ("README", None, None),
        ("a.bin", "application/octet-stream", None),
        ("", "", None),
    ],
)
def test_the_type_is_told_by_name_then_by_content_type(
    filename: str, content_type: str | None, media_type: str | None
) -> None:
    assert supported_media_type(filename, content_type) == media_type


def test_markdown_is_cut_at_headings_and_text_is_not() -> None:
    data = b"# A\n\none\n\n# B\n\ntwo\n"
    assert [section.title for section in parse(data, filename="a.md").sections] == ["A", "B"]
    assert [section.title for section in parse(data, filename="a.txt").sections] == [""]


def test_the_text_is_cleaned_before_it_is_cut() -> None:
    settings = KnowledgeBaseSettings(cleaning="wiki")
    document = parse("# [[a|订单]]\n\n见(wiki/x)下\n".encode(), filename="a.md", settings=settings)
    (section,) = document.sections
    assert (section.title, section.content) == ("订单", "见下")
    assert document.text[section.start : section.end] == "见下"


def test_an_empty_document_is_refused() -> None:
    with pytest.raises(EmptyDocument):
        parse(b"\n \n", filename="a.md")
