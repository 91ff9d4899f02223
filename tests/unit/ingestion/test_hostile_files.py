"""Files made to hurt: each ends soon, with a code or with text, and nothing is fetched, written or let through."""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from time import process_time
from zipfile import ZIP_BZIP2, ZIP_DEFLATED, ZipFile

import pytest

from services.ingestion.parsing.documents import parse
from services.ingestion.text import DocumentError
from tests.unit.ingestion.office import docx, element, epub, paragraph, pptx, relationships, shape, xlsx, zipped

LAUGHS = "<!DOCTYPE w [<!ENTITY a0 'ha'>" + "".join(f"<!ENTITY a{n} '{f'&a{n - 1};' * 10}'>" for n in range(1, 10))
MAX_SECONDS = 15.0  # of the processor; on a quiet machine each takes less than three


@pytest.fixture(autouse=True)
def soon() -> Iterator[None]:
    began = process_time()
    yield
    assert process_time() - began < MAX_SECONDS


def outcome(data: bytes, filename: str) -> str:
    """The code of the refusal, or "text"."""
    try:
        return "text" if parse(data, filename=filename).text else "nothing"
    except DocumentError as error:
        return error.code if len(str(error)) > 10 else f"{error.code} without a sentence"


def document_xml(start: str, inside: str) -> bytes:
    """A Word file whose main part begins with `start`."""
    return docx("", parts={"word/document.xml": start + element("w:document", f"<w:body>{inside}</w:body>")})


def zeros(size: int, name: str = "word/document.xml", method: int = ZIP_DEFLATED) -> bytes:
    """A Word file with a part that unpacks to `size` bytes."""
    buffer = BytesIO(docx("x"))
    with (
        ZipFile(buffer, "a", method, compresslevel=1) as archive,
        suppress(UserWarning),
        archive.open(name, "w") as part,
    ):
        for _ in range(size // 2**20):
            part.write(b" " * 2**20)
    return buffer.getvalue()


def with_declared_size(data: bytes, size: int) -> bytes:
    """The archive with this size written into its list for all parts."""
    changed = bytearray(data)
    start = data.find(b"PK\x01\x02")
    while start >= 0:
        struct.pack_into("<L", changed, start + 24, size)
        start = data.find(b"PK\x01\x02", start + 4)
    return bytes(changed)


def with_part(data: bytes, name: str, content: str) -> bytes:
    """The archive with another content for a part."""
    with ZipFile(BytesIO(data)) as archive:
        return zipped({**{one: archive.read(one) for one in archive.namelist()}, name: content})


@pytest.mark.parametrize("name", ["word/document.xml", "word/styles.xml"])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_part_that_unpacks_to_much_more_is_refused_before_it_is_unpacked(name: str) -> None:
    assert outcome(zeros(40 * 2**20, name), "a.docx") == "text_too_large"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_list_that_lies_about_sizes_gains_nothing() -> None:
    assert outcome(with_declared_size(zeros(40 * 2**20), 1000), "a.docx") == "corrupt"
    assert outcome(with_declared_size(docx(paragraph("x")), 2**31), "a.docx") == "text_too_large"
    assert outcome(zeros(2**20, method=ZIP_BZIP2), "a.docx") == "corrupt"


def test_too_many_entries_are_refused_before_their_list_is_read() -> None:
    many = zipped({"word/document.xml": "x", **{f"{number}": "" for number in range(10_001)}})
    assert outcome(many, "a.docx") == "too_many_entries"
    locator = b"PK\x06\x07" + bytes(16)  # of ZIP64, whose counts would be taken instead
    end = many.rfind(b"PK\x05\x06")
    few = many[:end] + locator + b"PK\x05\x06" + bytes(18)
    assert outcome(few, "a.docx") == "too_many_entries"


def test_archives_within_archives_are_not_opened() -> None:
    inner = zipped({"word/document.xml": "<x/>"})
    assert outcome(zipped({"inner.zip": inner}), "a.docx") == "corrupt"
    assert outcome(zipped({"inner.zip": inner}), "a.txt") == "unsupported_media_type"
    assert outcome(docx(paragraph("x"), parts={"word/embeddings/inner.zip": inner}), "a.docx") == "text"


@pytest.mark.parametrize("target", ["../../../../etc/passwd", "/etc/passwd", "..\\..\\x", "file:///etc/passwd"])
def test_names_that_lead_elsewhere_are_names_of_parts_at_most(target: str) -> None:
    rels = {"_rels/.rels": relationships(("officeDocument", target))}
    assert outcome(docx(paragraph("x"), parts=rels), "a.docx") == "corrupt"
    named = docx(paragraph("x"), parts={"../../evil.txt": "x", "word\\evil.xml": "x"})
    assert outcome(named, "a.docx") == "text"


@pytest.mark.parametrize(
    ("data", "filename"),
    [
        (document_xml(f"{LAUGHS}]>", paragraph("&a9;")), "a.docx"),
        (document_xml(f"{LAUGHS}]>", f'<w:p x="&a9;">{"x"}</w:p>'), "a.docx"),
        (document_xml("<!DOCTYPE w [<!ENTITY % p '<!ENTITY q \"x\">'> %p;]>", paragraph("&q;")), "a.docx"),
        (document_xml("<!DOCTYPE w>", paragraph("x")), "a.docx"),
        (document_xml(f"<!--{'-x' * 100_000}--><!DOCTYPE w>", paragraph("x")), "a.docx"),
        (
            docx("x", parts={"_rels/.rels": f"{LAUGHS}]>" + relationships(("officeDocument", "word/document.xml"))}),
            "a.docx",
        ),
        (docx("x", parts={"word/_rels/document.xml.rels": f"{LAUGHS}]><a>&a9;</a>"}), "a.docx"),
        (with_part(xlsx(("S", "")), "xl/sharedStrings.xml", f"{LAUGHS}]><sst><si><t>&a9;</t></si></sst>"), "a.xlsx"),
        (with_part(pptx(shape("x")), "ppt/slides/slide1.xml", f"{LAUGHS}]><sld>&a9;</sld>"), "a.pptx"),
        (epub({"one": "<p>x"}, parts={"OEBPS/book.opf": f"{LAUGHS}]><package>&a9;</package>"}), "a.epub"),
        (epub({"one": "<p>x"}, parts={"META-INF/container.xml": f"{LAUGHS}]><container>&a9;</container>"}), "a.epub"),
    ],
)
def test_document_types_with_declarations_are_refused(data: bytes, filename: str) -> None:
    assert outcome(data, filename) == "corrupt"


def test_no_entity_reaches_a_file_or_an_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/x"
        for target in ("file:///etc/hostname", address):
            declared = f"<!DOCTYPE x SYSTEM '{target}' [<!ENTITY e SYSTEM '{target}'>]>"
            assert outcome(document_xml(declared, paragraph("&e;")), "a.docx") == "corrupt"
            page = f"<?xml version='1.0'?>{declared}<html xmlns='http://www.w3.org/1999/xhtml'><p>a &e; b<img src='{target}'>"
            assert parse(page.encode(), filename="a.html").text.endswith("a &e; b")
            book = epub({"one": f"<p>&e;</p><img src='{target}'/>kept"})
            assert "kept" in parse(book, filename="a.epub").text
            # A document type without declarations is taken in EPUB's lists, and nothing is loaded for it.
            ncx = f"<!DOCTYPE x SYSTEM '{target}'><package><spine/></package>"
            assert outcome(epub({"one": "x"}, parts={"OEBPS/book.opf": ncx}), "a.epub") == "no_text"
        with pytest.raises(TimeoutError):
            server.accept()


ODD = "a\x00b\ufeffc\u202ed\u2066e\ufffef\u0001g"


def odd_html(text: str) -> bytes:
    return f"<p>{text}</p><pre>{text}</pre>".encode()


@pytest.mark.parametrize(
    ("make", "filename"),
    [
        (str.encode, "a.txt"),
        (str.encode, "a.md"),
        (odd_html, "a.html"),
        (lambda text: f"x,y\n{text},1\n".encode(), "a.csv"),
        (lambda text: f"<h1>{text}</h1>".encode("utf-16"), "a.html"),
    ],
)
def test_signs_that_a_database_refuses_never_come_through(make: Callable[[str], bytes], filename: str) -> None:
    text = parse(make(ODD), filename=filename).text
    assert "\x00" not in text
    assert "\u202e" in text  # a mark of direction is text
    text.encode()


@pytest.mark.parametrize("bad", [b"\xff\xfe", b"\xed\xa0\x80", b"\xc3\x28", b"\xf5\x80\x80\x80", b"\x80"])
@pytest.mark.parametrize("filename", ["a.txt", "a.md", "a.html", "a.csv"])
def test_bytes_that_are_no_utf_8_leave_the_rest_readable(bad: bytes, filename: str) -> None:
    document = parse("好的文字，一行。".encode() * 20 + bad + "结尾".encode(), filename=filename)
    assert "结尾" in document.text
    document.text.encode()


def test_xml_refuses_what_is_no_character() -> None:
    assert outcome(document_xml("", paragraph("a&#0;b")), "a.docx") == "corrupt"
    assert outcome(document_xml("", paragraph("a&#xD800;b")), "a.docx") == "corrupt"
    assert outcome(document_xml("", "<w:p>" * 300), "a.docx") == "corrupt"
    assert parse(docx(paragraph("a\u202eb&#x202e;c")), filename="a.docx").text == "a\u202eb\u202ec"


@pytest.mark.parametrize(
    ("data", "filename", "code"),
    [
        (b"", "a.pdf", "empty_document"),
        (b"", "a.docx", "empty_document"),
        (b" \n\t\xe3\x80\x80", "a.txt", "empty_document"),
        (b"\n\n", "a.html", "empty_document"),
        (b"\xef\xbb\xbf", "a.csv", "empty_document"),
        (docx("<w:p/>"), "a.docx", "no_text"),
        (pptx(""), "a.pptx", "text"),
        (xlsx(("S", "<sheetData/>")), "a.xlsx", "no_text"),
        (b"PK\x03\x04 cut off", "a.docx", "corrupt"),
        (b"PK\x05\x06" + bytes(18), "a.docx", "corrupt"),
        (b"just words", "a.docx", "corrupt"),
        (b"just words", "a.pdf", "corrupt"),
        (b"\x89PNG\r\n\x1a\n....", "a.docx", "corrupt"),
        (b"\x89PNG\r\n\x1a\n....", "a.txt", "unsupported_media_type"),
        (b"{\\rtf1 x}", "a.docx", "corrupt"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 WordDocument", "a.docx", "unsupported_media_type"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "EncryptedPackage".encode("utf-16-le"), "a.docx", "encrypted"),
        (b"words", "a.exe", "unsupported_media_type"),
        (
            zipped({"content.xml": "x", "mimetype": "application/vnd.oasis.opendocument.text"}),
            "a.docx",
            "unsupported_media_type",
        ),
        (zipped({"xl/workbook.bin": "x"}), "a.xlsx", "unsupported_media_type"),
        (zipped({"[Content_Types].xml": "<Types/>"}), "a.docx", "corrupt"),
    ],
)
def test_what_cannot_be_read_has_its_own_code(data: bytes, filename: str, code: str) -> None:
    assert outcome(data, filename) == code


@pytest.mark.parametrize("name", ["a.txt", "a.pdf", "a.xlsx", "a.html", "a.md", "a.unknown"])
def test_a_wrong_name_does_not_matter_where_the_content_is_telling(name: str) -> None:
    document = parse(docx(paragraph("words")), filename=name)
    assert document.text == "words"
    assert document.media_type.endswith("wordprocessingml.document")


def test_a_page_under_a_text_name_is_a_page_and_text_under_a_page_name_is_text() -> None:
    assert parse(b"\n<!DOCTYPE html><p>a<p>b", filename="a.txt").text == "a\n\nb"
    assert parse(b"<b>bold</b> Markdown", filename="a.md").text == "<b>bold</b> Markdown"
    assert parse(b"first line\nsecond line, 1 < 2", filename="a.html").text == "first line\nsecond line, 1 < 2"


def test_a_heading_of_5000_characters_is_text() -> None:
    long = "长" * 5_000
    for data, name in [
        (f"# {long}".encode(), "a.md"),
        (f"<h1>{long}</h1>".encode(), "a.html"),
        (docx(paragraph(long, properties='<w:outlineLvl w:val="0"/>')), "a.docx"),
        (pptx(shape(long, placeholder="title")), "a.pptx"),
    ]:
        document = parse(data, filename=name)
        assert document.text.count(long) == 1
        assert max(len(section.title) for section in document.sections) < 300
