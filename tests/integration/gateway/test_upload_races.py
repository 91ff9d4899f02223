"""Uploads of bytes that the knowledge base has, while others delete or store the same: all are answered, and none waits for ever."""

import asyncio
import hashlib
from collections import Counter
from uuid import UUID

import httpx
import pytest

from services.gateway.store import documents as store
from shared.db.pool import AnyConnection
from shared.ids import new_id
from tests.integration.gateway.test_documents import events_of, set_state, stored_bytes
from tests.support.api import Json, RunningGateway, create_knowledge_base, created, problem_of, upload
from tests.support.waiting import eventually

FIRST, SECOND = sorted((b"one", b"other"), key=lambda content: hashlib.sha256(content).digest())
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


async def waiting(gateway: RunningGateway, count: int, *tasks: "asyncio.Task[httpx.Response]") -> None:
    """Until so many transactions wait for locks, or one of the tasks, which shouldn't, is done."""

    async def is_so() -> bool:
        return any(task.done() for task in tasks) or await gateway.parts.pool.fetchval(WAITING) == count

    await eventually(is_so, within=10, every=0.01)


def uploading(client: httpx.AsyncClient, base: Json, *contents: bytes) -> "asyncio.Task[httpx.Response]":
    files = [("files", (f"{n}.md", content)) for n, content in enumerate(contents)]
    return asyncio.ensure_future(client.post(f"/api/knowledge-bases/{base['id']}/documents", files=files))


def deleting(client: httpx.AsyncClient, document: Json) -> "asyncio.Task[httpx.Response]":
    return asyncio.ensure_future(client.delete(f"/api/documents/{document['id']}"))


async def insert(connection: AnyConnection, base: Json, content: bytes) -> None:
    """What another upload of these bytes has inserted at first."""
    await connection.execute(
        "INSERT INTO document (tenant_id, id, knowledge_base_id, filename, media_type, size, sha256)"
        " SELECT tenant_id, $1, id, 'a.md', 'text/markdown', $3, $4 FROM knowledge_base WHERE id = $2",
        new_id(),
        UUID(base["id"]),
        len(content),
        hashlib.sha256(content).digest(),
    )


async def test_a_document_that_was_found_stays_until_it_is_answered(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway
) -> None:
    base = await create_knowledge_base(writer)
    document = await upload(writer, base["id"], FIRST)
    async with quiet_gateway.parts.pool.acquire() as other:
        transaction = other.transaction()
        await transaction.start()
        await insert(other, base, SECOND)
        again = uploading(writer, base, FIRST, SECOND)
        await waiting(quiet_gateway, 1, again)
        deletion = deleting(writer, document)
        await waiting(quiet_gateway, 2, again, deletion)
        await transaction.rollback()
    items = (await created(again))["items"]
    assert items[0] == document
    assert await stored_bytes(quiet_gateway, items[1]["id"]) == SECOND
    assert (await deletion).status_code == 204
    problem_of(await writer.get(f"/api/documents/{document['id']}"), 404, "not_found")


async def test_bytes_whose_document_is_just_deleted_are_stored_again(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway
) -> None:
    base = await create_knowledge_base(writer)
    document = await upload(writer, base["id"])
    tenant_id = await quiet_gateway.parts.pool.fetchval("SELECT tenant_id FROM document")
    async with quiet_gateway.parts.pool.acquire() as other:
        transaction = other.transaction()
        await transaction.start()
        await store.lock_document(other, tenant_id, UUID(document["id"]))
        again = asyncio.ensure_future(upload(writer, base["id"]))
        await waiting(quiet_gateway, 1)
        await store.delete_document(other, tenant_id, UUID(document["id"]))
        await transaction.commit()
    stored = await again
    assert stored["id"] != document["id"]
    assert await created(writer.get(f"/api/documents/{stored['id']}")) == stored
    assert [event for event, _ in await events_of(quiet_gateway, base["id"])] == [
        "document.state",
        "document.deleted",
        "document.state",
    ]


async def test_bytes_that_another_upload_stores_meanwhile_are_found(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway
) -> None:
    base = await create_knowledge_base(writer)
    async with quiet_gateway.parts.pool.acquire() as other:
        transaction = other.transaction()
        await transaction.start()
        await insert(other, base, SECOND)
        both = uploading(writer, base, FIRST, SECOND, FIRST)
        await waiting(quiet_gateway, 1, both)
        await transaction.commit()
    first, second, same = (await created(both))["items"]
    assert (first, second["filename"]) == (same, "a.md")
    assert await stored_bytes(quiet_gateway, first["id"]) == FIRST
    assert len(await events_of(quiet_gateway, base["id"])) == 1


async def test_who_finds_no_quiet_moment_is_told_to_try_again(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_ATTEMPTS", 1)
    base = await create_knowledge_base(writer)
    async with quiet_gateway.parts.pool.acquire() as other:
        transaction = other.transaction()
        await transaction.start()
        await insert(other, base, SECOND)
        both = uploading(writer, base, FIRST, SECOND)
        await waiting(quiet_gateway, 1, both)
        await transaction.commit()
    answer = await both
    problem_of(answer, 503, "unavailable")
    assert answer.headers["retry-after"]
    assert await quiet_gateway.parts.pool.fetchval("SELECT count(*) FROM document") == 1
    assert len((await created(uploading(writer, base, FIRST, SECOND)))["items"]) == 2


async def test_an_upload_of_the_same_bytes_and_the_deletion_of_its_knowledge_base_do_not_wait_for_each_other(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway
) -> None:
    base = await create_knowledge_base(writer)
    document = await upload(writer, base["id"])
    async with quiet_gateway.parts.pool.acquire() as other:
        transaction = other.transaction()
        await transaction.start()
        await other.execute("SELECT FROM document WHERE id = $1 FOR UPDATE", UUID(document["id"]))
        deletion = asyncio.ensure_future(writer.delete(f"/api/knowledge-bases/{base['id']}"))
        await waiting(quiet_gateway, 1, deletion)
        again = uploading(writer, base, b"# Title\n\nText.\n")
        await waiting(quiet_gateway, 2, deletion, again)
        await transaction.rollback()
    assert (await deletion).status_code == 204
    problem_of(await again, 404, "not_found")


@pytest.mark.parametrize("state", ["ready", "failed"])
async def test_uploads_and_deletions_at_once_are_all_answered(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway, state: str
) -> None:
    base = await create_knowledge_base(writer)
    statuses: Counter[int] = Counter()
    for _ in range(10):
        documents = [await upload(writer, base["id"], content) for content in (FIRST, SECOND)]
        for document in documents:
            await set_state(quiet_gateway, document["id"], state)
        uploads = [uploading(writer, base, *order) for order in ((FIRST, SECOND), (SECOND, FIRST)) * 2]
        deletions = [deleting(writer, document) for document in documents]
        statuses.update(answer.status_code for answer in await asyncio.gather(*uploads))
        assert {answer.status_code for answer in await asyncio.gather(*deletions)} == {204}
    assert statuses == {202: 40}
