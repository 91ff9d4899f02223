import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from services.ingestion.parsing.limits import ParseCrashed, ParseLimits, ParseMemory, ParseTimeout, TooManyPieces
from services.ingestion.parsing.worker import IsolatedParser
from services.ingestion.text import NotText
from shared.contracts.knowledge_settings import KnowledgeBaseSettings, SplitSettings
from tests.support.pdf_files import PdfFile, form_in_itself, lines

SLOW = b"> " * 20 + b"# heading\n> words\n" + b"| a | b |\n|---|---|\n" + b"| 1 | 2 |\n" * 300_000


@pytest.fixture
async def parser() -> AsyncIterator[IsolatedParser]:
    async with IsolatedParser(parallel=2) as parser:
        yield parser


def template() -> psutil.Process:
    """The template started last."""
    children = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    templates = [child for child in children if "services.ingestion.parsing.child" in child.cmdline()]
    return max(templates, key=lambda process: process.create_time())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  (processes set no event)
            await asyncio.sleep(0.01)


async def test_a_document_comes_back_in_pieces(parser: IsolatedParser) -> None:
    settings = KnowledgeBaseSettings(splitting=SplitSettings(chunk_size=100, overlap=20, max_section=100))
    text = "# 3.1 订单\n\n" + "订单的状态由支付决定。" * 30
    pieces = (await parser.parse(text.encode(), filename="a.md", settings=settings)).pieces
    assert len(pieces) > 3
    assert [piece.ordinal for piece in pieces] == list(range(len(pieces)))
    assert {(piece.title, piece.heading_path) for piece in pieces} == {("订单", ("3.1 订单",))}
    assert all(piece.content == text[piece.start : piece.end] for piece in pieces)


async def test_many_documents_at_once(parser: IsolatedParser) -> None:
    found = await asyncio.gather(*(parser.parse(f"text {n}".encode(), filename="a.txt") for n in range(30)))
    assert [file.pieces[0].content for file in found] == [f"text {n}" for n in range(30)]


async def test_refusals_keep_their_type_and_code(parser: IsolatedParser) -> None:
    with pytest.raises(NotText, match="binary"):
        await parser.parse(bytes(range(1, 128)) * 20, filename="a.txt")
    assert await parser.parse(b"next", filename="a.txt")


async def test_time_is_limited_on_the_processor_and_by_the_clock() -> None:
    for limits in (ParseLimits(cpu_seconds=1), ParseLimits(wall_seconds=0.2)):
        async with IsolatedParser(limits) as parser:
            with pytest.raises(ParseTimeout) as error:
                await parser.parse(SLOW, filename="a.md")
            assert error.value.code == "parse_timeout"
            assert await parser.parse(b"next", filename="a.txt")


async def test_memory_is_limited() -> None:
    async with IsolatedParser(ParseLimits(memory_bytes=300 * 2**20)) as parser:
        with pytest.raises(ParseMemory) as error:
            await parser.parse(b"one line\n" * 2_000_000, filename="a.md")
        assert error.value.code == "parse_memory"
        assert await parser.parse(b"next", filename="a.txt")


async def test_the_number_of_pieces_is_limited() -> None:
    async with IsolatedParser(ParseLimits(max_pieces=3)) as parser:
        with pytest.raises(TooManyPieces):
            await parser.parse(b"# A\n\ntext\n\n" * 4, filename="a.md")


async def test_cancelling_kills_the_child(parser: IsolatedParser) -> None:
    task = asyncio.create_task(parser.parse(SLOW, filename="a.md"))
    await until(lambda: len(template().children()) == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: template().children() == [])


async def test_a_killed_child_is_reported(parser: IsolatedParser) -> None:
    task = asyncio.create_task(parser.parse(SLOW, filename="a.md"))
    await until(lambda: len(template().children()) == 1)
    template().children()[0].kill()
    with pytest.raises(ParseCrashed, match="SIGKILL") as error:
        await task
    assert error.value.code == "parse_crashed"


async def test_a_child_that_died_while_idle_harms_no_document(parser: IsolatedParser) -> None:
    await parser.parse(b"first", filename="a.txt")
    (child,) = template().children()
    child.kill()
    await until(lambda: template().children() == [])
    assert (await parser.parse(b"second", filename="a.txt")).pieces[0].content == "second"


async def test_a_dead_template_is_replaced(parser: IsolatedParser) -> None:
    dead = template()
    dead.kill()
    await until(lambda: not dead.is_running() or dead.status() == psutil.STATUS_ZOMBIE)
    assert (await parser.parse(b"text", filename="a.txt")).pieces[0].content == "text"


async def test_a_child_is_replaced_after_its_share_of_documents() -> None:
    async with IsolatedParser(parallel=1, documents_per_child=2) as parser:
        children = set()
        for _ in range(4):
            await parser.parse(b"text", filename="a.txt")
            children |= {child.pid for child in template().children()}
        assert len(children) >= 2


async def test_the_processes_know_no_secret_and_end_with_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://user:secret@localhost/x")
    async with IsolatedParser() as parser:
        await parser.parse(b"text", filename="a.txt")
        process = template()
        everyone = [process, *process.children()]
        assert all("secret" not in str(member.environ()) for member in everyone)
    await until(lambda: not any(member.is_running() for member in everyone))


def test_the_child_imports_no_library_for_input_and_output() -> None:
    script = "import sys, services.ingestion.parsing.child; print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    loaded = {name.partition(".")[0] for name in printed.split()}
    assert loaded & {"asyncpg", "faststream", "aio_pika", "httpx", "fastapi", "asyncio"} == set()


async def test_what_its_owner_should_know_and_what_it_is_come_back(parser: IsolatedParser) -> None:
    data = PdfFile([lines("text of page one"), []]).to_bytes()
    parsed = await parser.parse(data, filename="a.txt")
    assert parsed.pieces[0].content == "text of page one"
    assert parsed.media_type == "application/pdf"
    assert [warning.code for warning in parsed.warnings] == ["page_without_text"]


async def test_a_bomb_fails_alone() -> None:
    bomb = form_in_itself()
    async with IsolatedParser(ParseLimits(cpu_seconds=2), parallel=2) as parser:
        files = [bomb if number == 3 else f"text {number}".encode() for number in range(10)]
        parsed = await asyncio.gather(*(parser.parse(data, filename="a.txt") for data in files), return_exceptions=True)
    failed = [number for number, outcome in enumerate(parsed) if isinstance(outcome, BaseException)]
    assert failed == [3]
    assert isinstance(parsed[3], ParseTimeout | ParseCrashed)


def status(process: psutil.Process) -> str:
    return Path(f"/proc/{process.pid}/status").read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such limits")
async def test_the_processes_are_confined(parser: IsolatedParser) -> None:
    await parser.parse(b"text", filename="a.txt")
    process = template()
    for said in map(status, (process, *process.children())):
        assert "NoNewPrivs:\t1" in said
        assert "Seccomp:\t2" in said
        assert "CapEff:\t0000000000000000" in said
