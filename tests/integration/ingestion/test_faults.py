"""Workers that are killed, stopped or frozen in the middle of a document, wake-ups that are lost, and servers that stay away."""

import asyncio
import time

import pytest

from shared.topology import DOCUMENTS
from tests.integration.ingestion.conftest import BATCH, CHAPTERS, SECONDS, Home
from tests.integration.ingestion.library import Library, chapters


async def test_another_worker_goes_on_where_a_killed_one_was(home: Home) -> None:
    library = await Library.create(home.pool, embed="body")
    first = home.start_ingestion()
    document_id = await home.hold_in_the_middle(library, "held")
    home.start_ingestion()
    first.kill()
    killed_at = time.monotonic()
    home.embeddings.release()
    await library.assert_ready(document_id, CHAPTERS)
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
    await library.assert_ready(document_id, 10)
    assert len(home.embeddings.texts) == 10


async def test_a_document_that_kills_its_workers_is_given_up(home: Home) -> None:
    library = await Library.create(home.pool)
    service = home.start_ingestion(CHATMIND_FAILPOINT="document_parsed=kill", CHATMIND_LEASE__MAX_ATTEMPTS="2")
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
    document_id = await home.hold_in_the_middle(library, "held")
    started = time.monotonic()
    assert await asyncio.to_thread(service.terminate) == 0
    assert time.monotonic() - started < 10
    document = await library.document(document_id)
    assert (document["state"], document["attempts"], document["lease_owner"]) == ("queued", 0, None)
    home.embeddings.release()
    home.start_ingestion()
    await library.assert_ready(document_id, CHAPTERS)
    assert len(home.embeddings.texts) <= CHAPTERS + BATCH


async def test_a_frozen_worker_changes_nothing_when_it_thaws(home: Home) -> None:
    library = await Library.create(home.pool, embed="body")
    short = {"CHATMIND_LEASE__LEASE": "2", "CHATMIND_LEASE__RENEW_EVERY": "0.5"}
    frozen = home.start_ingestion(**short)
    document_id = await home.hold_in_the_middle(library, "held")
    frozen.pause()
    home.embeddings.release()
    home.start_ingestion(**short)
    await library.assert_ready(document_id, CHAPTERS)
    epoch = (await library.document(document_id))["lease_epoch"]
    events = len(await library.events(document_id))
    frozen.resume()
    await home.until_logged(frozen, "job.lost", document_id)
    assert (await library.document(document_id))["lease_epoch"] == epoch
    assert len(await library.events(document_id)) == events
    await library.assert_ready(document_id, CHAPTERS)


async def test_documents_fail_when_the_embeddings_server_stays_down(home: Home) -> None:
    library = await Library.create(home.pool)
    home.start_ingestion(CHATMIND_WORK__EMBED_RETRY="0.1", CHATMIND_LEASE__MAX_ATTEMPTS="2")
    await home.embeddings.stop()
    document = await library.until(await library.upload(chapters("vain", 3)), "failed", seconds=SECONDS)
    assert document["error"]["code"] == "embedding_unavailable"
    assert (document["attempts"], document["lease_owner"]) == (2, None)


async def test_a_document_whose_wake_up_was_lost_is_found(home: Home) -> None:
    library = await Library.create(home.pool, embed="body")
    document_id = await library.upload(chapters("forgotten", 2))
    await home.pool.execute("DELETE FROM outbox")
    home.start_ingestion()
    await library.assert_ready(document_id, 2)


async def test_a_deleted_queue_costs_no_document(home: Home) -> None:
    library = await Library.create(home.pool, embed="body")
    home.start_ingestion()
    document_ids = [await home.hold_in_the_middle(library, "held")]
    document_ids += [await library.upload(chapters(f"pending{number}", 2), f"{number}.md") for number in range(5)]
    vhost = home.environment["RABBITMQ_URL"].rsplit("/", 1)[1]
    await asyncio.to_thread(home.stack.rabbitmq.delete_queue, DOCUMENTS, vhost)
    home.embeddings.release()
    for document_id in document_ids:
        await library.until(document_id, "ready", seconds=SECONDS)
