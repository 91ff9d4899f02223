"""Files whose shape or size is made to hurt, in the isolated parser: read or refused within its limits; and what refusing costs."""

import json
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
import pytest_asyncio

from services.ingestion.parsing.worker import IsolatedParser
from services.ingestion.text import DocumentError
from tests.support.stack import REPOSITORY
from tests.unit.ingestion.office import docx, paragraph, xlsx, zipped

MAX_RSS_BYTES = 300 * 1024**2
_READ_ALL = """
import json, re, sys
from pathlib import Path
from services.ingestion.parsing.documents import parse
from services.ingestion.text import DocumentError

codes = {}
for name in sys.argv[1:]:
    try:
        parse(Path(name).read_bytes(), filename=name)
        codes[Path(name).name] = "text"
    except DocumentError as error:
        codes[Path(name).name] = error.code
peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())  # getrusage inherits its parent's
print(json.dumps([codes, int(peak[1]) * 1024]))
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def parser() -> AsyncIterator[IsolatedParser]:
    async with IsolatedParser(parallel=1) as started:
        yield started


async def outcome(parser: IsolatedParser, data: bytes, filename: str) -> str:
    """The code of the refusal, or "text"."""
    try:
        return "text" if (await parser.parse(data, filename=filename)).pieces else "nothing"
    except DocumentError as error:
        return error.code


def bomb(part: str, head: str, tail: str) -> bytes:
    """A Word file with a text of 300 MB in one part."""
    buffer = BytesIO()
    with ZipFile(buffer, "w", ZIP_DEFLATED, compresslevel=1) as archive:
        with ZipFile(BytesIO(docx(paragraph("x")))) as sound:
            for name in sound.namelist():
                if name != part:
                    archive.writestr(name, sound.read(name))
        with archive.open(part, "w") as stream:
            stream.write(head.encode())
            for _ in range(300):
                stream.write(b"a" * 2**20)
            stream.write(tail.encode())
    return buffer.getvalue()


def many_entries(count: int) -> bytes:
    """A ZIP file whose list names one part `count` times."""
    data = zipped({"word/document.xml": "x"})
    start, end = data.index(b"PK\x01\x02"), data.index(b"PK\x05\x06")
    entries = data[start:end] * count
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, len(entries), start, 0)
    return data[:start] + entries + tail


def test_bombs_are_refused_before_they_are_unpacked(tmp_path: Path) -> None:
    files = {
        "text.docx": bomb("word/document.xml", "<document><body><p><r><t>", "</t></r></p></body></document>"),
        "relationships.docx": bomb("_rels/.rels", "<Relationships>", "</Relationships>"),
        "entries.docx": many_entries(100_000),
        "nested.docx": zipped({f"{number}.zip": zipped({"a": bytes(2**20)}) for number in range(100)}),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    command = [sys.executable, "-c", _READ_ALL, *(str(tmp_path / name) for name in files)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=90)
    codes, rss = json.loads(done.stdout.splitlines()[-1])
    assert codes == {
        "text.docx": "text_too_large",
        "relationships.docx": "text_too_large",
        "entries.docx": "too_many_entries",
        "nested.docx": "corrupt",
    }
    assert rss < MAX_RSS_BYTES


@pytest.mark.parametrize(
    ("data", "filename", "expected"),
    [
        (b"# a\n" * 1_000_000, "a.md", "too_many_headings"),
        (b"<h1>a</h1>" * 1_000_000, "a.html", "too_many_headings"),
        (docx(paragraph("a", properties='<w:outlineLvl w:val="0"/>') * 30_000), "a.docx", "too_many_headings"),
        (b"- " * 2_000 + b"x", "a.md", "text"),
        (b"".join(b" " * 2 * n + b"- x\n" for n in range(2_000)), "a.md", "text"),
        (b">" * 2_000 + b"x", "a.md", "text"),
        (b"<ul><li>" * 1_000 + b"x", "a.html", "text"),
        (b"x" * 20 * 2**20, "a.md", "text_too_large"),
        (b"x" * 2 * 2**20, "a.md", "line_too_long"),
        (b"x" * 20 * 2**20, "a.txt", "text_too_large"),
        (b"x" * 20 * 2**20, "a.html", "text_too_large"),
        (b"x" * 20 * 2**20, "a.csv", "text_too_large"),
        (b"|a" * 100_000 + b"|\n" + b"|-" * 100_000 + b"|\n|b|\n", "a.md", "text"),
        (b"a," * 100_000 + b"\nb,c\n", "a.csv", "text"),
        (xlsx(("S", f"<sheetData>{'<row>' + '<c><v>1</v></c>' * 100_000 + '</row>'}</sheetData>")), "a.xlsx", "text"),
        (("字" * 61_000).encode(), "a.txt", "text"),
        (b"<table><tr>" + b"<td>a" * 100_000 + b"<tr><td>b<td>c</table>", "a.html", "text"),
        (docx(f"<w:tbl><w:tr>{'<w:tc><w:p/></w:tc>' * 50_000}</w:tr></w:tbl>" + paragraph("x")), "a.docx", "text"),
        (b"<table>" + b"<tr>" * 3_000 + b"<td colspan=1000>x" * 3_000 + b"</table>", "a.html", "text_too_large"),
        (
            ("<table>" + "<tr><td rowspan=65534>" * 200 + f"<td rowspan=60000>{'x' * 70}" * 100).encode(),
            "a.html",
            "text",
        ),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else value,
)
async def test_shapes_that_cost_much_are_read_or_refused_soon(
    parser: IsolatedParser, data: bytes, filename: str, expected: str
) -> None:
    assert await outcome(parser, data, filename) == expected
