"""Documents that are queued again by the gateway, and what ingestion makes of them."""

import asyncio
import hashlib
from collections.abc import AsyncIterator

import httpx
import pytest

from shared.db.pool import Pool
from shared.ids import new_id
from tests.integration.ingestion.conftest import SECONDS, Home
from tests.integration.ingestion.library import Library, chapters, eventually
from tests.support.api import Json, RunningGateway, created
from tests.support.embedding_server import EmbeddingServer

MANY = 10_000
WORKED_OFF = 100  # of the many: enough to see that all parts go on
PARAGRAPHS = "# Orders\n\nAn order has a state. <!-- not for readers -->\n\n## Fields\n\nThe state is open or closed.\n"


@pytest.fixture
async def gateway(shared_home: Home) -> AsyncIterator[RunningGateway]:
    """A gateway in the shared home."""
    running = RunningGateway(shared_home.environment["DATABASE_URL"], shared_home.environment["RABBITMQ_URL"])
    await running.start()
    yield running
    await running.stop()


async def test_a_document_is_read_again_with_the_settings_of_now(
    shared_home: Home, embeddings: EmbeddingServer, gateway: RunningGateway
) -> None:
    library = await Library.create(shared_home.pool, embed="body")
    client = await gateway.client(str(library.tenant_id))
    document_id = await library.upload(PARAGRAPHS)
    await library.assert_ready(document_id, 2)
    [first, second] = [chunk["content"] for chunk in await library.chunks(document_id)]
    assert "not for readers" in first
    settings = {"embed": "body", "cleaning": {"rules": ["comments"]}}
    await created(client.patch(f"/api/knowledge-bases/{library.id}", json={"settings": settings}))
    embeddings.hold_after(0)
    asked = len(embeddings.texts)
    answer = await created(client.post(f"/api/knowledge-bases/{library.id}/reprocess"))
    assert answer["reprocessed"] == 1
    async with asyncio.timeout(SECONDS):
        await embeddings.held.wait()
    assert [chunk["content"] for chunk in await library.chunks(document_id)] == [first, second]
    assert (await library.document(document_id))["current_version"] == 1
    embeddings.release()
    await library.assert_ready(document_id, 2)
    changed = [chunk["content"] for chunk in await library.chunks(document_id)]
    assert (changed[0], changed[1]) == ("An order has a state.", second)
    # What is the same text as before is not embedded again.
    assert embeddings.texts[asked:] == ["passage: An order has a state."]
    assert [event["version"] for event in await library.events(document_id) if event["state"] == "ready"] == [1, 2]


async def test_a_document_that_is_worked_on_begins_anew_with_the_settings_of_now(
    shared_home: Home, embeddings: EmbeddingServer, gateway: RunningGateway
) -> None:
    library = await Library.create(shared_home.pool, embed="body")
    client = await gateway.client(str(library.tenant_id))
    document_id = await shared_home.hold_in_the_middle(library, "begun")
    settings = {"splitting": {"method": "recursive", "chunk_size": 8000, "overlap": 0}, "embed": "body"}
    await created(client.patch(f"/api/knowledge-bases/{library.id}", json={"settings": settings}))
    await created(client.post(f"/api/documents/{document_id}/reprocess"))
    embeddings.release()
    await library.assert_ready(document_id, 1)
    await shared_home.until_logged(shared_home.services[0], "job.lost", document_id)


async def test_a_document_deleted_while_it_is_read_again_does_not_come_back(
    shared_home: Home, embeddings: EmbeddingServer, gateway: RunningGateway
) -> None:
    library = await Library.create(shared_home.pool, embed="body")
    client = await gateway.client(str(library.tenant_id))
    document_id = await library.upload(chapters("twice", 3))
    await library.assert_ready(document_id, 3)
    await created(client.patch(f"/api/knowledge-bases/{library.id}", json={"settings": {"embed": "title"}}))
    embeddings.hold_after(0)
    await created(client.post(f"/api/documents/{document_id}/reprocess"))
    async with asyncio.timeout(SECONDS):
        await embeddings.held.wait()
    assert (await client.delete(f"/api/documents/{document_id}")).status_code == 204
    embeddings.release()
    await shared_home.until_logged(shared_home.services[0], "job.lost", document_id)
    for table in ("document_blob", "chunk"):
        left = await shared_home.pool.fetchval(f"SELECT count(*) FROM {table} WHERE document_id = $1", document_id)
        assert left == 0


async def test_ten_thousand_documents_are_queued_by_one_request_and_worked_off(home: Home) -> None:
    library = await Library.create(home.pool, embed="body")
    await add_failed_documents(library, MANY + 1)
    gateway = RunningGateway(home.environment["DATABASE_URL"], home.environment["RABBITMQ_URL"])
    await gateway.start()
    try:
        client = await gateway.client(str(library.tenant_id))
        path = f"/api/knowledge-bases/{library.id}"
        assert await accepted(client, f"{path}/retry-failed") == {"retried": MANY, "more": True}
        assert await states(home.pool) == {"queued": MANY, "failed": 1}
        assert await accepted(client, f"{path}/retry-failed") == {"retried": 1, "more": False}
        assert await states(home.pool) == {"queued": MANY + 1}
        assert await home.pool.fetchval("SELECT count(DISTINCT seq) FROM knowledge_base_event") == MANY + 1

        home.start_ingestion()
        await eventually(lambda: reaches(home.pool, WORKED_OFF), "retried documents are ready", SECONDS)
        home.services[0].kill()

        await home.pool.execute("UPDATE document SET state = 'ready', lease_owner = NULL, lease_until = NULL")
        answer = await accepted(client, f"{path}/reprocess")
        assert (answer["reprocessed"], answer["more"]) == (MANY, True)
        answer = await accepted(client, f"{path}/reprocess", cursor=answer["next_cursor"])
        assert (answer["reprocessed"], answer["more"]) == (1, False)
        assert await home.pool.fetchval("SELECT count(*) FROM document_blob WHERE version = 2") == MANY + 1

        home.start_ingestion()
        await eventually(lambda: reaches(home.pool, WORKED_OFF), "documents that were read again are ready", SECONDS)
        assert not (await states(home.pool)).keys() & {"failed"}
        wrong = """SELECT count(*) FROM document d WHERE state = 'ready' AND (current_version <> 2 OR chunk_count <> 1 OR
            1 <> (SELECT count(*) FROM chunk c WHERE c.document_id = d.id AND c.version = 2 AND c.content LIKE 'Text %'))"""
        assert await home.pool.fetchval(wrong) == 0
    finally:
        await gateway.stop()


async def accepted(client: httpx.AsyncClient, path: str, **body: str) -> Json:
    """The answer to a POST that must be a success."""
    return await created(client.post(path, json=body or None))


async def states(pool: Pool) -> dict[str, int]:
    rows = await pool.fetch("SELECT state, count(*) FROM document GROUP BY state")
    return {row["state"]: row["count"] for row in rows}


async def reaches(pool: Pool, ready: int) -> bool:
    return (await states(pool)).get("ready", 0) >= ready


async def add_failed_documents(library: Library, count: int) -> None:
    """As they are after an upload and a failure; uploading so many would take minutes."""
    texts = [f"Text {number}".encode() for number in range(count)]
    ids = [new_id() for _ in texts]
    await library.pool.execute(
        """WITH added AS (
               INSERT INTO document (tenant_id, id, knowledge_base_id, filename, media_type, size, sha256, state, error, attempts)
               SELECT $1, one.id, $2, 'a.md', 'text/markdown', octet_length(one.text), one.hash, 'failed',
                      '{"code": "embedding_failed", "message": "away"}', 5
               FROM unnest($3::uuid[], $4::bytea[], $5::bytea[]) AS one (id, text, hash))
           SELECT""",
        *(library.tenant_id, library.id, ids, texts, [hashlib.sha256(text).digest() for text in texts]),
    )
    rows = [(library.tenant_id, document_id, 1, 0, text) for document_id, text in zip(ids, texts, strict=True)]
    columns = ["tenant_id", "document_id", "version", "part", "data"]
    async with library.pool.acquire() as connection:
        await connection.copy_records_to_table("document_blob", records=rows, columns=columns)
