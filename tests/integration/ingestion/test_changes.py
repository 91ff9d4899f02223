"""Documents that are deleted or replaced while they are worked on, and an embeddings server that is away for a while."""

import asyncio

from tests.integration.ingestion.conftest import BATCH, SECONDS, Home
from tests.integration.ingestion.library import Library, chapters, eventually
from tests.support.embedding_server import EmbeddingServer


async def test_a_document_deleted_while_it_is_worked_on_does_not_come_back(
    shared_home: Home, embeddings: EmbeddingServer
) -> None:
    library = await Library.create(shared_home.pool, embed="body")
    asked = len(embeddings.texts)
    document_id = await shared_home.hold_in_the_middle(library, "deleted")
    await library.delete(document_id)
    embeddings.release()
    await shared_home.until_logged(shared_home.services[0], "job.lost", document_id)
    counts = await shared_home.pool.fetchrow(
        """SELECT (SELECT count(*) FROM document WHERE id = $1), (SELECT count(*) FROM document_blob WHERE document_id = $1),
                  (SELECT count(*) FROM chunk WHERE document_id = $1),
                  (SELECT count(*) FROM chunk_embedding WHERE knowledge_base_id = $2)""",
        document_id,
        library.id,
    )
    assert counts is not None
    assert list(counts) == [0, 0, 0, 0]
    assert len(embeddings.texts) - asked <= 11 * BATCH  # ten batches before it was held, and the one that was
    await library.assert_ready(await library.upload(chapters("after", 2)), 2)


async def test_newer_bytes_win_over_the_work_on_older_ones(shared_home: Home, embeddings: EmbeddingServer) -> None:
    library = await Library.create(shared_home.pool, embed="body")
    document_id = await shared_home.hold_in_the_middle(library, "older")
    await library.replace(document_id, chapters("newer", 5))
    embeddings.release()
    await library.assert_ready(document_id, 5)
    await shared_home.until_logged(shared_home.services[0], "job.lost", document_id)
    assert {chunk["title"].split()[0] for chunk in await library.chunks(document_id)} == {"newer"}
    versions = await shared_home.pool.fetch(
        "SELECT DISTINCT version FROM document_blob WHERE document_id = $1", document_id
    )
    assert [row["version"] for row in versions] == [2]


async def test_the_old_version_stays_until_the_new_one_is_whole(shared_home: Home, embeddings: EmbeddingServer) -> None:
    library = await Library.create(shared_home.pool, embed="body")
    document_id = await library.upload(chapters("first", 7))
    await library.until(document_id, "ready")
    embeddings.hold_after(1)
    await library.replace(document_id, chapters("second", 9))
    async with asyncio.timeout(SECONDS):
        await embeddings.held.wait()
    assert {chunk["title"].split()[0] for chunk in await library.chunks(document_id)} == {"first"}
    assert (await library.document(document_id))["current_version"] == 1
    embeddings.release()
    await library.assert_ready(document_id, 9)


async def test_documents_wait_for_an_embeddings_server_that_is_down(
    shared_home: Home, embeddings: EmbeddingServer
) -> None:
    library = await Library.create(shared_home.pool, embed="body")
    await embeddings.stop()
    document_id = await library.upload(chapters("patient", 3))
    await shared_home.until_logged(shared_home.services[0], "document.delayed", document_id)
    document = await library.document(document_id)
    assert document["state"] != "failed"
    assert document["error"] is None
    await embeddings.start()
    await library.assert_ready(document_id, 3)


async def test_a_document_says_what_it_waits_for_until_it_goes_on(
    shared_home: Home, embeddings: EmbeddingServer
) -> None:
    library = await Library.create(shared_home.pool, embed="body")
    await embeddings.stop()
    document_id = await library.upload(chapters("explained", 3))
    await shared_home.until_logged(shared_home.services[0], "document.delayed", document_id)
    waiting = (await library.document(document_id))["waiting"]
    assert (waiting["code"], set(waiting)) == ("embedding_unavailable", {"code", "message", "since"})

    async def has_tried_again() -> bool:
        return bool((await library.document(document_id))["attempts"] > 2)

    await eventually(has_tried_again, "there was another attempt")
    await embeddings.start()
    await library.assert_ready(document_id, 3)
    assert (await library.document(document_id))["waiting"] is None
    said = [event["waiting"] for event in await library.events(document_id)]
    assert said[0] is None
    assert said[-1] is None
    reasons = [one for one in said if one]
    assert len(reasons) > 2
    assert {one["since"] for one in reasons} == {waiting["since"]}, "it has waited since the first attempt"
    assert all(event["waiting"] is None for event in await library.events(document_id) if event["state"] == "ready")


async def test_a_document_that_fails_waits_for_nothing(home: Home) -> None:
    home.start_ingestion(CHATMIND_WORK__EMBED_RETRY="0", CHATMIND_LEASE__MAX_ATTEMPTS="2")
    library = await Library.create(home.pool, embed="body")
    await home.embeddings.stop()
    document_id = await library.upload(chapters("hopeless", 3))
    document = await library.until(document_id, "failed")
    assert document["error"]["code"] == "embedding_unavailable"
    assert document["waiting"] is None
    assert [bool(event["waiting"]) for event in await library.events(document_id) if event["state"] == "queued"] == [
        True
    ]
