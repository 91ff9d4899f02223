"""Documents that are to be read again: which ones, as which version, and what that leaves alone."""

import asyncio
from typing import Any
from uuid import UUID

import httpx
import pytest

from services.gateway.cursors import encode_id
from shared.ids import new_id
from tests.integration.gateway.test_documents import add_chunks, events_of, set_state, stored_bytes, wake_ups
from tests.support.api import Json, RunningGateway, create_knowledge_base, created, problem_of, read_all, upload
from tests.support.waiting import eventually

MIB = 1024 * 1024


async def documents_in(gateway: RunningGateway, client: httpx.AsyncClient, base: Json, *states: str) -> list[Json]:
    """One document in each of the states, in the order of their ids."""
    documents = [await upload(client, base["id"], f"# Text {number}".encode()) for number in range(len(states))]
    for document, state in zip(documents, states, strict=True):
        await set_state(gateway, document["id"], state, current_version=1 if state == "ready" else None)
    return documents


async def reprocess(client: httpx.AsyncClient, base: Json, **body: Any) -> Json:
    answer = await client.post(f"/api/knowledge-bases/{base['id']}/reprocess", json=body)
    assert answer.status_code == 202, answer.text
    told: Json = answer.json()
    return told


async def versions(client: httpx.AsyncClient, documents: list[Json]) -> list[tuple[str, int]]:
    shown = [await created(client.get(f"/api/documents/{document['id']}")) for document in documents]
    return [(document["state"], document["version"]) for document in shown]


async def blobs(gateway: RunningGateway, document: Json) -> list[tuple[int, int]]:
    """Version and number of each part."""
    rows = await gateway.parts.pool.fetch(
        "SELECT version, part FROM document_blob WHERE document_id = $1 ORDER BY version, part", UUID(document["id"])
    )
    return [(row["version"], row["part"]) for row in rows]


async def test_a_document_becomes_a_new_version_of_the_same_bytes_while_the_old_chunks_serve(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway
) -> None:
    base = await create_knowledge_base(writer)
    content = bytes(range(32, 127)) * 26_000  # two full parts and a bit
    document = await upload(writer, base["id"], content)
    await add_chunks(quiet_gateway, document["id"], 4)
    await set_state(quiet_gateway, document["id"], "ready", current_version=1, chunk_count=4)
    path = f"/api/documents/{document['id']}"
    again = await created(writer.post(f"{path}/reprocess"))
    assert (again["state"], again["version"], again["current_version"], again["chunk_count"]) == ("queued", 2, 1, 4)
    assert (again["sha256"], again["filename"]) == (document["sha256"], document["filename"])
    assert len(await read_all(writer, f"{path}/chunks")) == 4
    assert await stored_bytes(quiet_gateway, document["id"]) == content
    assert await blobs(quiet_gateway, document) == [(2, 0), (2, 1), (2, 2)]
    assert await wake_ups(quiet_gateway, document["id"]) == 2
    assert [event for _, event in await events_of(quiet_gateway, base["id"])] == [document, again]


async def test_what_waits_is_left_and_what_is_worked_on_begins_anew(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway
) -> None:
    base = await create_knowledge_base(writer)
    documents = await documents_in(quiet_gateway, writer, base, "queued", "parsing", "embedding", "ready", "failed")
    assert await reprocess(writer, base) == {"reprocessed": 4, "more": False, "next_cursor": None, "missing": []}
    assert await versions(writer, documents) == [("queued", 1), *[("queued", 2)] * 4]
    epochs = await quiet_gateway.parts.pool.fetch("SELECT lease_epoch, error FROM document ORDER BY id")
    assert [row["lease_epoch"] for row in epochs] == [0, 1, 1, 1, 1]  # who works on an old version can't write any more
    assert [len(await blobs(quiet_gateway, document)) for document in documents] == [1] * 5
    assert (await reprocess(writer, base))["reprocessed"] == 0
    assert (await created(writer.post(f"/api/documents/{documents[1]['id']}/reprocess")))["version"] == 2


async def test_only_the_named_documents_of_the_base_are_read_again(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway
) -> None:
    base, other = await create_knowledge_base(writer), await create_knowledge_base(writer)
    documents = await documents_in(quiet_gateway, writer, base, "ready", "ready", "ready")
    [elsewhere] = await documents_in(quiet_gateway, writer, other, "ready")
    gone = documents[2]["id"]
    await writer.delete(f"/api/documents/{gone}")
    named = [documents[1]["id"], gone, elsewhere["id"], documents[1]["id"]]
    told = await reprocess(writer, base, document_ids=named)
    assert (told["reprocessed"], told["more"], sorted(told["missing"])) == (1, False, sorted([gone, elsewhere["id"]]))
    assert await versions(writer, [*documents[:2], elsewhere]) == [("ready", 1), ("queued", 2), ("ready", 1)]
    stranger = await quiet_gateway.client("another")
    foreign = await create_knowledge_base(stranger)
    named = [documents[0]["id"]]
    assert (await reprocess(stranger, foreign, document_ids=named))["missing"] == named
    assert await versions(writer, documents[:1]) == [("ready", 1)]


async def test_a_base_larger_than_one_request_is_gone_through_with_cursors(database_url: str) -> None:
    gateway = RunningGateway(database_url, "amqp://127.0.0.1:1/", limits={"retries": 2})
    await gateway.start()
    try:
        client = await gateway.client()
        base = await create_knowledge_base(client)
        documents = await documents_in(gateway, client, base, "ready", "ready", "queued", "ready", "failed", "ready")
        counts: list[int] = []
        body: Json = {}
        while True:
            told = await reprocess(client, base, **body)
            counts.append(told["reprocessed"])
            # Those that were queued are read, and would be queued again by a call that began at the start.
            for document in documents[:2]:
                await set_state(gateway, document["id"], "ready")
            assert told["more"] is (told["next_cursor"] is not None)
            if not told["more"]:
                break
            body = {"cursor": told["next_cursor"]}
        assert counts == [2, 1, 2]
        assert [version for _, version in await versions(client, documents)] == [2, 2, 1, 2, 2, 2]
        ids = [document["id"] for document in documents]
        told = await reprocess(client, base, document_ids=ids[:3])
        assert (told["reprocessed"], told["next_cursor"]) == (2, encode_id(UUID(ids[1])))
        told = await reprocess(client, base, document_ids=ids[:3], cursor=told["next_cursor"])
        assert (told["reprocessed"], told["more"]) == (0, False)
    finally:
        await gateway.stop()


async def test_a_repeated_request_with_its_key_reads_nothing_again(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway
) -> None:
    base = await create_knowledge_base(writer)
    documents = await documents_in(quiet_gateway, writer, base, "ready", "ready")
    ids = [document["id"] for document in documents]
    requests: list[tuple[str, Any]] = [
        (f"/api/knowledge-bases/{base['id']}/reprocess", {}),
        (f"/api/knowledge-bases/{base['id']}/reprocess", {"document_ids": ids}),
        (f"/api/documents/{ids[0]}/reprocess", None),
    ]
    for number, (path, body) in enumerate(requests):
        key = {"Idempotency-Key": str(number)}
        for document_id in ids:
            await set_state(quiet_gateway, document_id, "ready")
        first = await created(writer.post(path, json=body, headers=key))
        for document_id in ids:
            await set_state(quiet_gateway, document_id, "ready")
        before = await versions(writer, documents)
        assert await created(writer.post(path, json=body, headers=key)) == first
        assert await versions(writer, documents) == before
    path, key = requests[0][0], {"Idempotency-Key": "0"}
    problem_of(await writer.post(path, json={"document_ids": ids}, headers=key), 409, "idempotency_conflict")
    problem_of(await writer.post(path, headers={"Idempotency-Key": "a b"}), 422, "invalid_request")


NEWER_BYTES_ARE_WORKED_ON = """
    UPDATE document SET version = 2, state = 'parsing';
    DELETE FROM document_blob;
    INSERT INTO document_blob SELECT tenant_id, id, 2, 0, 'new' FROM document
"""
IT_IS_CLAIMED = "UPDATE document SET state = 'parsing'"


@pytest.mark.parametrize(
    ("state", "change", "version", "content"),
    [
        pytest.param("ready", NEWER_BYTES_ARE_WORKED_ON, 3, b"new", id="replaced and claimed"),
        pytest.param("queued", IT_IS_CLAIMED, 2, b"# Text 0", id="claimed with the settings of a moment ago"),
    ],
)
@pytest.mark.parametrize("whole", [False, True])
async def test_what_changes_while_its_lock_is_waited_for_is_seen(
    writer: httpx.AsyncClient,
    quiet_gateway: RunningGateway,
    state: str,
    change: str,
    version: int,
    content: bytes,
    *,
    whole: bool,
) -> None:
    base = await create_knowledge_base(writer)
    [document] = await documents_in(quiet_gateway, writer, base, state)
    pool = quiet_gateway.parts.pool
    path = f"/api/knowledge-bases/{base['id']}" if whole else f"/api/documents/{document['id']}"

    async def waits() -> bool:
        return bool(await pool.fetchval("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"))

    async with pool.acquire() as holder:
        transaction = holder.transaction()
        await transaction.start()
        await holder.execute(change)
        waiting = asyncio.ensure_future(writer.post(f"{path}/reprocess"))
        await eventually(waits, within=10, every=0.01)
        await transaction.commit()
    await created(waiting)
    assert await versions(writer, [document]) == [("queued", version)]
    assert await blobs(quiet_gateway, document) == [(version, 0)]
    assert await stored_bytes(quiet_gateway, document["id"]) == content


async def test_the_bytes_are_not_written_again(writer: httpx.AsyncClient, quiet_gateway: RunningGateway) -> None:
    base = await create_knowledge_base(writer)
    document = await upload(writer, base["id"], b"x" * (2 * MIB))
    await set_state(quiet_gateway, document["id"], "ready")
    size = "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = 'document_blob'::regclass"
    before = await quiet_gateway.parts.pool.fetchval(size)
    assert before > 2 * MIB
    await created(writer.post(f"/api/documents/{document['id']}/reprocess"))
    assert await quiet_gateway.parts.pool.fetchval(size) == before


async def test_what_is_no_request_is_refused(writer: httpx.AsyncClient, quiet_gateway: RunningGateway) -> None:
    base = await create_knowledge_base(writer)
    path = f"/api/knowledge-bases/{base['id']}/reprocess"
    wrong: list[tuple[Json, str]] = [
        ({"document_ids": []}, "document_ids"),
        ({"document_ids": ["x"]}, "document_ids.0"),
        ({"document_ids": [str(new_id())] * 10_001}, "document_ids"),
        ({"state": "ready"}, "state"),
    ]
    for body, field in wrong:
        problem = problem_of(await writer.post(path, json=body), 422, "invalid_request")
        assert [error["field"] for error in problem["errors"]] == [field]
    problem_of(await writer.post(path, json={"cursor": "x"}), 422, "invalid_cursor")
    problem_of(await writer.post(f"/api/documents/{new_id()}/reprocess"), 404, "not_found")


async def test_a_tenant_with_too_much_unfinished_is_told_to_wait(database_url: str) -> None:
    gateway = RunningGateway(database_url, "amqp://127.0.0.1:1/", limits={"documents_per_tenant": 3})
    await gateway.start()
    try:
        client = await gateway.client()
        base = await create_knowledge_base(client)
        documents = await documents_in(gateway, client, base, "ready", "ready", "ready")
        await upload(client, base["id"], b"waits")
        told = await reprocess(client, base)
        assert (told["reprocessed"], told["more"]) == (2, True)
        for path in (f"knowledge-bases/{base['id']}", f"documents/{documents[2]['id']}"):
            problem_of(await client.post(f"/api/{path}/reprocess"), 429, "too_many_documents")
    finally:
        await gateway.stop()
