"""However little memory there is: a document is read whole, or it is said that memory was what it lacked."""

import os
import resource
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import orjson
import pytest

from services.ingestion.parsing.child import ParseRequest, answer
from services.ingestion.parsing.limits import ParseLimits
from services.ingestion.parsing.ocr import OcrSettings
from shared.contracts.knowledge_settings import KnowledgeBaseSettings
from tests.unit.ingestion.office import docx, epub, paragraph, pptx, run, shape, xlsx

STEP = 2 * 10**6  # bytes
PARAGRAPHS = 5_000
HTML = f"<html><body>{'<p>some <b>bold</b> words</p>' * PARAGRAPHS}</body></html>"
DOCUMENTS = {
    "a.html": HTML.encode(),
    "a.docx": docx(paragraph("".join(run("word ") for _ in range(PARAGRAPHS)))),
    "a.pptx": pptx(shape(*["word"] * PARAGRAPHS)),
    "a.xlsx": xlsx(("One", f"<sheetData><row>{'<c><v>1</v></c>' * PARAGRAPHS}</row></sheetData>")),
    "a.epub": epub({"one.xhtml": "<p>some words</p>" * PARAGRAPHS}),
}


def read_within(data: bytes, filename: str, memory: int) -> str:
    """The code of the failure, or what was read, by a process that may allocate so many bytes."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + memory, size + memory))
        request = ParseRequest(
            filename=filename,
            media_type=None,
            settings=KnowledgeBaseSettings(),
            limits=ParseLimits(),
            ocr=OcrSettings(),
        )
        try:
            answered = orjson.loads(answer(request, data))
            code = answered.get("failure", {}).get("code")
            os.write(sending, (code or f"read {sum(len(piece[2]) for piece in answered['pieces'])}").encode())
        except MemoryError:
            os.write(sending, b"parse_memory")
        finally:
            os._exit(0)
    os.close(sending)
    with os.fdopen(receiving, "rb") as pipe:
        told = pipe.read().decode()
    os.waitpid(child, 0)
    return told


def read_within_more_and_more(data: bytes, filename: str) -> tuple[str, list[str]]:
    """What the document holds, and what became of it within 0, 2, 4, ... MB until there was enough."""
    whole = read_within(data, filename, 10**9)
    outcomes: list[str] = []
    while whole not in outcomes:
        outcomes.append(read_within(data, filename, STEP * len(outcomes)))
    return whole, outcomes


@pytest.fixture(scope="module")
def fresh_process() -> Iterator[ProcessPoolExecutor]:
    """A process that has not yet been given any memory that it could use again; what it forks reads."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs to know how much memory it has already")
@pytest.mark.parametrize("filename", DOCUMENTS)
def test_a_document_is_whole_or_too_large_for_the_memory(filename: str, fresh_process: ProcessPoolExecutor) -> None:
    whole, outcomes = fresh_process.submit(read_within_more_and_more, DOCUMENTS[filename], filename).result()
    assert whole.startswith("read ")
    assert set(outcomes) == {whole, "parse_memory"}
