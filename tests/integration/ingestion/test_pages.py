"""Chunks and their parents say which pages of a PDF file they stand on."""

import re

from tests.integration.ingestion.conftest import Home
from tests.integration.ingestion.library import Library
from tests.support.pdf_files import PdfFile, lines

# Each word tells its page; the lines fill their column, so that the text goes on from page to page.
PAGES = [[" ".join(f"word{line}of{page}" for _ in range(8)) for line in range(10)] for page in (1, 2, 3)]


async def test_chunks_of_a_pdf_are_stored_with_their_pages(shared_home: Home) -> None:
    library = await Library.create(
        shared_home.pool, "body", method="parent_child", chunk_size=200, overlap=0, parent_size=1000
    )
    document_id = await library.upload(PdfFile([lines(*page) for page in PAGES]).to_bytes(), "manual.pdf")
    await library.until(document_id, "ready")
    chunks = await library.chunks(document_id)
    parents = {row["id"]: row for row in await shared_home.pool.fetch("SELECT * FROM chunk_parent ORDER BY ordinal")}
    for row in [*chunks, *(parents[chunk["parent_id"]] for chunk in chunks)]:
        pages = [int(page) for page in re.findall(r"of(\d)", row["content"])]
        assert (row["page_first"], row["page_last"]) == (pages[0], pages[-1])
    assert (chunks[0]["page_first"], chunks[-1]["page_last"]) == (1, 3)
    for chunk in chunks:
        parent = parents[chunk["parent_id"]]
        assert parent["page_first"] <= chunk["page_first"] <= chunk["page_last"] <= parent["page_last"]


async def test_chunks_of_other_formats_have_no_pages(shared_home: Home) -> None:
    library = await Library.create(shared_home.pool, "body")
    document_id = await library.upload("# One\n\nA chunk.\n")
    await library.until(document_id, "ready")
    assert [(chunk["page_first"], chunk["page_last"]) for chunk in await library.chunks(document_id)] == [(None, None)]
