"""What can happen to a document while it is worked on: killed, stopped and frozen workers, absent servers, deletion, newer bytes."""

import asyncio
import time
from uuid import UUID

import pytest

from shared.topology import DOCUMENTS
from tests.integration.ingestion.conftest import BATCH, Home
from tests.integration.ingestion.library import Library, eventually
from tests.support.stack import ServiceProcess

CHAPTERS = 100
SECONDS = 40  # for the slowest machine; what is quick is asserted by itself


def chapters(word: str, count: int = CHAPTERS) -> str:
    return "\n".join(f"# {word} {number}\n\nThe body of {word} {number}.\n" for number in range(count))


async def logged(service: ServiceProcess, event: str) -> None:
    """Returns when the service has logged an event."""

    async def found() -> bool:
        return f'"event":"{event}"' in service.log_file.read_text()

    await eventually(found, f"{event} was logged", SECONDS)


async def held_document(home: Home, library: Library) -> UUID:
    """A document whose embedding waits in the middle, at the embeddings server."""
    home.embeddings.hold_after(10)
    document_id = await library.upload(chapters("held"))
    async with asyncio.timeout(SECONDS):
        await home.embeddings.held.wait()
    return document_id


async def assert_ready_once(library: Library, document_id: UUID, chunks: int) -> None:
    document = await library.until(document_id, "ready", "failed", seconds=SECONDS)
    assert (document["state"], document["chunk_count"], document["error"]) == ("ready", chunks, None)
    rows = await library.chunks(document_id)
    assert [row["ordinal"] for row in rows] == list(range(chunks))
    assert {row["version"] for row in rows} == {document["current_version"]} == {document["version"]}
    assert len(await library.vectors(document_id)) == chunks
    events = await library.events(document_id)
    assert [event["state"] for event in events if event["version"] == document["version"]].count("ready") == 1


async def test_another_worker_goes_on_where_a_killed_one_was(home: Home) -> None:
    library = await Library.create(home.pool, embed="body")
    first = home.start_ingestion()
    document_id = await held_document(home, library)
    home.start_ingestion()
    first.kill()
    killed_at = time.monotonic()
    home.embeddings.release()
    await assert_ready_once(library, document_id, CHAPTERS)
    assert time.monotonic() - killed_at < 15  # half a lease: the death was noticed, not waited for
    assert len(home.embeddings.texts) <= CHAPTERS * 1.02 + BATCH
    assert (await library.document(document_id))["attempts"] == 0


@pytest.mark.parametrize("stage", ["document_claimed", "document_parsed", "document_embedded", "document_swapping"])
async def test_a_worker_killed_at_any_stage_leaves_nothing_half_done(home: Home, stage: str) -> None:
    library = await Library.create(home.pool, embed="body")
    first = home.start_ingestion(CHATMIND_FAILPOINT=f"{stage}=kill")
    document_id = await library.upload(chapters(stage, 10))
    await asyncio.to_thread(first.process.wait, SECONDS)
    assert await library.chunks(document_id) == []
    home.start_ingestion()
    await assert_ready_once(library, document_id, 10)
    assert len(home.embeddings.texts) == 10


async def test_a_document_that_kills_its_workers_is_given_up(home: Home) -> None:
    library = await Library.create(home.pool)
    service = home.start_ingestion(CHATMIND_FAILPOINT="document_parsed=kill", CHATMIND_LEASES__MAX_ATTEMPTS="2")
    document_id = await library.upload(chapters("deadly", 3))
    for _ in range(2):
        await asyncio.to_thread(service.process.wait, SECONDS)
        service.start()
    document = await library.until(document_id, "failed", seconds=SECONDS)
    assert document["error"]["code"] == "attempts_exhausted"
    assert (await library.events(document_id))[-1]["state"] == "failed"
    assert service.process.poll() is None


async def test_a_terminated_worker_hands_its_document_back(home: Home) -> None:
    library = await Library.create(home.pool, embed="body")
    service = home.start_ingestion()
    document_id = await held_document(home, library)
    started = time.monotonic()
    assert await asyncio.to_thread(service.terminate) == 0
    assert time.monotonic() - started < 10
    document = await library.document(document_id)
    assert (document["state"], document["attempts"], document["lease_owner"]) == ("queued", 0, None)
    home.embeddings.release()
    home.start_ingestion()
    await assert_ready_once(library, document_id, CHAPTERS)
    assert len(home.embeddings.texts) <= CHAPTERS + BATCH


async def test_a_frozen_worker_changes_nothing_when_it_thaws(home: Home) -> None:
    library = await Library.create(home.pool, embed="body")
    short = {"CHATMIND_LEASES__LEASE": "2", "CHATMIND_LEASES__RENEW_EVERY": "0.5"}
    frozen = home.start_ingestion(**short)
    document_id = await held_document(home, library)
    frozen.pause()
    home.embeddings.release()
    home.start_ingestion(**short)
    await assert_ready_once(library, document_id, CHAPTERS)
    epoch = (await library.document(document_id))["lease_epoch"]
    events = len(await library.events(document_id))
    frozen.resume()
    await logged(frozen, "document.lost")
    assert (await library.document(document_id))["lease_epoch"] == epoch
    assert len(await library.events(document_id)) == events
    await assert_ready_once(library, document_id, CHAPTERS)


async def test_a_document_deleted_while_it_is_worked_on_does_not_come_back(home: Home) -> None:
    library = await Library.create(home.pool, embed="body")
    service = home.start_ingestion()
    document_id = await held_document(home, library)
    await library.delete(document_id)
    home.embeddings.release()
    await logged(service, "document.lost")
    for table in ("document", "chunk", "chunk_embedding", "document_blob"):
        assert await home.pool.fetchval(f"SELECT count(*) FROM {table}") == 0
    assert len(home.embeddings.texts) < CHAPTERS  # it stopped, rather than work for nobody
    next_id = await library.upload(chapters("next", 2))
    await assert_ready_once(library, next_id, 2)


async def test_newer_bytes_win_over_the_work_on_older_ones(home: Home) -> None:
    library = await Library.create(home.pool, embed="body")
    service = home.start_ingestion()
    document_id = await held_document(home, library)
    await library.replace(document_id, chapters("newer", 5))
    home.embeddings.release()
    await assert_ready_once(library, document_id, 5)
    await logged(service, "document.lost")
    assert {chunk["title"].split()[0] for chunk in await library.chunks(document_id)} == {"newer"}
    assert await home.pool.fetch("SELECT DISTINCT version FROM document_blob") == [(2,)]


async def test_the_old_version_stays_until_the_new_one_is_whole(home: Home) -> None:
    library = await Library.create(home.pool, embed="body")
    home.start_ingestion()
    document_id = await library.upload(chapters("old", 7))
    await library.until(document_id, "ready")
    home.embeddings.hold_after(1)
    await library.replace(document_id, chapters("new", 9))
    async with asyncio.timeout(SECONDS):
        await home.embeddings.held.wait()
    assert len(await library.chunks(document_id)) == 7
    assert (await library.document(document_id))["current_version"] == 1
    home.embeddings.release()
    await assert_ready_once(library, document_id, 9)
    assert len(await library.vectors(document_id)) == 9


async def test_documents_wait_for_an_embeddings_server_that_is_down(home: Home) -> None:
    library = await Library.create(home.pool)
    service = home.start_ingestion(CHATMIND_WORK__EMBED_RETRY="0.1")
    await home.embeddings.stop()
    document_id = await library.upload(chapters("patient", 3))
    await logged(service, "document.delayed")
    document = await library.document(document_id)
    assert document["state"] != "failed"
    assert document["error"] is None
    await home.embeddings.start()
    await library.until(document_id, "ready", "failed", seconds=SECONDS)
    assert (await library.document(document_id))["chunk_count"] == 3


async def test_documents_fail_when_the_embeddings_server_stays_down(home: Home) -> None:
    library = await Library.create(home.pool)
    home.start_ingestion(CHATMIND_WORK__EMBED_RETRY="0.1", CHATMIND_LEASES__MAX_ATTEMPTS="2")
    await home.embeddings.stop()
    document = await library.until(await library.upload(chapters("vain", 3)), "failed", seconds=SECONDS)
    assert document["error"]["code"] == "embedding_unavailable"
    assert (document["attempts"], document["lease_owner"]) == (2, None)


async def test_a_document_whose_wake_up_was_lost_is_found(home: Home) -> None:
    library = await Library.create(home.pool, embed="body")
    document_id = await library.upload(chapters("forgotten", 2))
    await home.pool.execute("DELETE FROM outbox")
    home.start_ingestion(CHATMIND_LEASES__WAKE_AFTER="0.5")
    await assert_ready_once(library, document_id, 2)


async def test_a_deleted_queue_costs_no_document(home: Home) -> None:
    library = await Library.create(home.pool, embed="body")
    home.start_ingestion(CHATMIND_LEASES__WAKE_AFTER="1")
    document_ids = [await held_document(home, library)]
    document_ids += [await library.upload(chapters(f"pending{number}", 2), f"{number}.md") for number in range(5)]
    vhost = home.environment["RABBITMQ_URL"].rsplit("/", 1)[1]
    await asyncio.to_thread(home.stack.rabbitmq.delete_queue, DOCUMENTS, vhost)
    home.embeddings.release()
    for document_id in document_ids:
        await library.until(document_id, "ready", seconds=SECONDS)
