"""Documents: what is taken, what is refused, and that every change is one transaction with its event and its wake-up."""

import asyncio
import hashlib
from typing import Any
from uuid import UUID

import httpx

from tests.support.api import (
    Json,
    RunningGateway,
    create_agent,
    create_knowledge_base,
    created,
    problem_of,
    read_all,
    upload,
)

MIB = 1024 * 1024


async def events_of(gateway: RunningGateway, knowledge_base_id: str) -> list[tuple[str, Json]]:
    rows = await gateway.parts.pool.fetch(
        "SELECT seq, type, payload::jsonb AS payload FROM knowledge_base_event WHERE knowledge_base_id = $1 ORDER BY seq",
        UUID(knowledge_base_id),
    )
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    return [(row["type"], row["payload"]["document"]) for row in rows]


async def wake_ups(gateway: RunningGateway, document_id: str) -> int:
    count: int = await gateway.parts.pool.fetchval(
        "SELECT count(*) FROM outbox WHERE kind = 'IngestDocument' AND subject_id = $1", UUID(document_id)
    )
    return count


async def stored_bytes(gateway: RunningGateway, document_id: str) -> bytes:
    rows = await gateway.parts.pool.fetch(
        "SELECT data FROM document_blob WHERE document_id = $1 ORDER BY version, part", UUID(document_id)
    )
    return b"".join(row["data"] for row in rows)


async def set_state(gateway: RunningGateway, document_id: str, state: str, **columns: Any) -> None:
    await gateway.parts.pool.execute(
        "UPDATE document SET state = $2, current_version = coalesce($3, current_version),"
        " chunk_count = coalesce($4, chunk_count) WHERE id = $1",
        UUID(document_id),
        state,
        columns.get("current_version"),
        columns.get("chunk_count"),
    )


async def test_a_file_is_stored_with_its_hash_event_and_wake_up(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway
) -> None:
    base = await create_knowledge_base(writer)
    content = "# 订单\n\n".encode() + bytes(range(32, 127)) * 26_000  # two full parts and a bit
    document = await upload(writer, base["id"], content, "订单 设计.MD")
    assert document["filename"] == "订单 设计.MD"
    assert (document["media_type"], document["size"]) == ("text/markdown", len(content))
    assert document["sha256"] == hashlib.sha256(content).hexdigest()
    assert (document["state"], document["version"], document["current_version"]) == ("queued", 1, None)
    assert (document["progress"], document["chunk_count"], document["error"]) == ({"done": 0, "total": 0}, 0, None)
    assert await stored_bytes(quiet_gateway, document["id"]) == content
    assert await events_of(quiet_gateway, base["id"]) == [("document.state", document)]
    assert await wake_ups(quiet_gateway, document["id"]) == 1
    assert await created(writer.get(f"/api/documents/{document['id']}")) == document
    sizes = await quiet_gateway.parts.pool.fetch("SELECT octet_length(data) AS size FROM document_blob ORDER BY part")
    assert max(row["size"] for row in sizes) <= MIB


async def test_several_files_answer_in_their_order(writer: httpx.AsyncClient, quiet_gateway: RunningGateway) -> None:
    base = await create_knowledge_base(writer)
    names = ["c.md", "a.txt", "b.markdown"]
    files = [("files", (name, name.encode())) for name in names]
    answer = await created(writer.post(f"/api/knowledge-bases/{base['id']}/documents", files=files))
    assert [document["filename"] for document in answer["items"]] == names
    assert len(await events_of(quiet_gateway, base["id"])) == 3


async def test_the_same_bytes_are_one_document(writer: httpx.AsyncClient, quiet_gateway: RunningGateway) -> None:
    base, other = await create_knowledge_base(writer), await create_knowledge_base(writer)
    documents = await asyncio.gather(*(upload(writer, base["id"], b"same", f"{n}.md") for n in range(6)))
    assert len({document["id"] for document in documents}) == 1
    assert await wake_ups(quiet_gateway, documents[0]["id"]) == 1
    assert len(await events_of(quiet_gateway, base["id"])) == 1
    assert (await upload(writer, other["id"], b"same"))["id"] != documents[0]["id"]


async def test_requests_with_the_same_files_in_another_order_do_not_wait_for_each_other(
    writer: httpx.AsyncClient,
) -> None:
    base = await create_knowledge_base(writer)
    files = [("files", (f"{n}.md", str(n).encode() * 100_000)) for n in range(3)]
    orders = [files, files[::-1]] * 3
    path = f"/api/knowledge-bases/{base['id']}/documents"
    answers = await asyncio.gather(*(created(writer.post(path, files=order)) for order in orders))
    assert len({document["id"] for answer in answers for document in answer["items"]}) == 3


async def test_the_bytes_of_a_failed_document_queue_it_again(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway
) -> None:
    base = await create_knowledge_base(writer)
    document = await upload(writer, base["id"])
    await set_state(quiet_gateway, document["id"], "failed")
    again = await upload(writer, base["id"])
    assert (again["id"], again["state"]) == (document["id"], "queued")
    assert await wake_ups(quiet_gateway, document["id"]) == 2
    assert [event["state"] for _, event in await events_of(quiet_gateway, base["id"])] == ["queued", "queued"]


async def test_retry_queues_failed_documents_and_no_others(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway
) -> None:
    base = await create_knowledge_base(writer)
    documents = [await upload(writer, base["id"], str(n).encode()) for n in range(3)]
    for document, state in zip(documents, ("ready", "failed", "failed"), strict=True):
        await set_state(quiet_gateway, document["id"], state)
    assert (await created(writer.post(f"/api/documents/{documents[0]['id']}/retry")))["state"] == "ready"
    assert (await created(writer.post(f"/api/documents/{documents[1]['id']}/retry")))["state"] == "queued"
    path = f"/api/knowledge-bases/{base['id']}/retry-failed"
    assert await created(writer.post(path)) == {"retried": 1, "more": False}
    assert await created(writer.post(path)) == {"retried": 0, "more": False}
    assert [await wake_ups(quiet_gateway, document["id"]) for document in documents] == [1, 2, 2]


async def test_new_content_is_a_new_version_and_the_old_one_serves_on(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway
) -> None:
    base = await create_knowledge_base(writer)
    document = await upload(writer, base["id"], b"old", "old.md")
    await set_state(quiet_gateway, document["id"], "ready", current_version=1, chunk_count=4)
    path = f"/api/documents/{document['id']}/content"
    changed = await created(writer.put(path, files={"file": ("new.txt", b"new")}))
    assert (changed["version"], changed["current_version"], changed["chunk_count"]) == (2, 1, 4)
    assert (changed["state"], changed["filename"], changed["media_type"]) == ("queued", "new.txt", "text/plain")
    assert await stored_bytes(quiet_gateway, document["id"]) == b"new"
    assert await wake_ups(quiet_gateway, document["id"]) == 2
    assert await created(writer.put(path, files={"file": ("new.txt", b"new")})) == changed
    assert len(await events_of(quiet_gateway, base["id"])) == 2
    epoch = await quiet_gateway.parts.pool.fetchval("SELECT lease_epoch FROM document")
    assert epoch == 1  # whoever worked on the old version can't write any more


async def test_content_may_be_sent_as_it_is_and_keeps_the_name(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway
) -> None:
    base = await create_knowledge_base(writer)
    document = await upload(writer, base["id"], b"first", "old name.md")
    path = f"/api/documents/{document['id']}/content"
    answer = await writer.put(path, content=b"second", headers={"Content-Type": "application/octet-stream"})
    assert answer.status_code == 202, answer.text
    assert (answer.json()["filename"], answer.json()["size"]) == ("old name.md", 6)
    problem_of(await writer.put(path, content=b""), 422, "empty_file")
    assert (await writer.get(f"/api/documents/{document['id']}")).json()["size"] == 6


async def test_content_that_another_document_has_is_refused(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway
) -> None:
    base = await create_knowledge_base(writer)
    first, second = await upload(writer, base["id"], b"first"), await upload(writer, base["id"], b"second")
    answer = await writer.put(f"/api/documents/{first['id']}/content", files={"file": ("a.md", b"second")})
    problem_of(answer, 409, "duplicate_document")
    assert await created(writer.get(f"/api/documents/{first['id']}")) == first
    assert await stored_bytes(quiet_gateway, first["id"]) == b"first"
    assert second["id"] != first["id"]


async def test_a_deleted_document_leaves_its_event_and_nothing_else(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway
) -> None:
    base = await create_knowledge_base(writer)
    document = await upload(writer, base["id"])
    await add_chunks(quiet_gateway, document["id"], 2)
    assert (await writer.delete(f"/api/documents/{document['id']}")).status_code == 204
    problem_of(await writer.get(f"/api/documents/{document['id']}"), 404, "not_found")
    problem_of(await writer.delete(f"/api/documents/{document['id']}"), 404, "not_found")
    events = await events_of(quiet_gateway, base["id"])
    assert [(event, document["id"]) for event, document in events] == [
        ("document.state", document["id"]),
        ("document.deleted", document["id"]),
    ]
    for table in ("document", "document_blob", "chunk"):
        assert await quiet_gateway.parts.pool.fetchval(f"SELECT count(*) FROM {table}") == 0


async def add_chunks(gateway: RunningGateway, document_id: str, count: int) -> None:
    await gateway.parts.pool.execute(
        "INSERT INTO chunk (tenant_id, id, knowledge_base_id, document_id, version, ordinal, title, heading_path, content,"
        " char_start, char_end, keywords, keyword_count)"
        " SELECT tenant_id, gen_random_uuid(), knowledge_base_id, id, version, n, '表 ' || n, ARRAY['库', '表'], '正文', 0, 2, '', 0"
        " FROM document, generate_series(0, $2::integer - 1) n WHERE id = $1",
        UUID(document_id),
        count,
    )


async def test_chunks_are_those_that_searches_see(writer: httpx.AsyncClient, quiet_gateway: RunningGateway) -> None:
    base = await create_knowledge_base(writer)
    document = await upload(writer, base["id"])
    path = f"/api/documents/{document['id']}/chunks"
    await add_chunks(quiet_gateway, document["id"], 5)
    assert await read_all(writer, path) == []
    await set_state(quiet_gateway, document["id"], "ready", current_version=1)
    chunks = await read_all(writer, path, limit=2)
    assert [(chunk["ordinal"], chunk["title"]) for chunk in chunks] == [(n, f"表 {n}") for n in range(5)]
    assert (chunks[0]["heading_path"], chunks[0]["content"], chunks[0]["kind"]) == (["库", "表"], "正文", "original")
    assert (chunks[0]["page_first"], chunks[0]["page_last"]) == (None, None)
    await quiet_gateway.parts.pool.execute("UPDATE chunk SET page_first = 3, page_last = 4 WHERE ordinal = 0")
    chunks = await read_all(writer, path)
    assert [chunk["page_first"] for chunk in chunks] == [3, None, None, None, None]
    assert chunks[0]["page_last"] == 4


async def test_a_document_says_what_it_waits_for(writer: httpx.AsyncClient, quiet_gateway: RunningGateway) -> None:
    base = await create_knowledge_base(writer)
    document = await upload(writer, base["id"])
    assert document["waiting"] is None
    path = f"/api/documents/{document['id']}"
    waiting = {"code": "embedding_unavailable", "message": "it doesn't answer", "since": "2024-05-06T07:08:09+00:00"}
    await quiet_gateway.parts.pool.execute("UPDATE document SET waiting = $1", waiting)
    assert (await created(writer.get(path)))["waiting"] == waiting
    await set_state(quiet_gateway, document["id"], "ready")
    assert (await created(writer.get(path)))["waiting"] is None, "a worker of the previous release knows nothing of it"
    await set_state(quiet_gateway, document["id"], "parsing")
    assert (await writer.put(f"{path}/content", files={"file": ("a.md", b"newer")})).status_code == 202
    assert (await created(writer.get(path)))["waiting"] is None


async def test_a_deleted_knowledge_base_takes_its_documents_and_grants_along(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway
) -> None:
    base = await create_knowledge_base(writer)
    document = await upload(writer, base["id"])
    agent = await create_agent(writer, knowledge_base_ids=[base["id"]])
    assert agent["knowledge_base_ids"] == [base["id"]]
    assert (await writer.delete(f"/api/knowledge-bases/{base['id']}")).status_code == 204
    problem_of(await writer.get(f"/api/documents/{document['id']}"), 404, "not_found")
    assert (await created(writer.get(f"/api/agents/{agent['id']}")))["knowledge_base_ids"] == []


async def test_a_knowledge_base_deleted_among_uploads_leaves_no_error_of_ours(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway
) -> None:
    base = await create_knowledge_base(writer)
    path = f"/api/knowledge-bases/{base['id']}"
    uploads = [writer.post(f"{path}/documents", files={"files": ("a.md", str(n).encode())}) for n in range(8)]
    answers = await asyncio.gather(*uploads[:4], writer.delete(path), *uploads[4:])
    assert {answer.status_code for answer in answers} <= {202, 204, 404}
    assert await quiet_gateway.parts.pool.fetchval("SELECT count(*) FROM document") == 0


async def test_settings_are_kept_and_checked(writer: httpx.AsyncClient) -> None:
    settings: dict[str, Any] = {
        "splitting": {"method": "parent_child", "chunk_size": 300, "overlap": 30, "parent_size": 900},
        "cleaning": {"rules": ["urls", "blank_runs"]},
        "embed": "title",
    }
    base = await create_knowledge_base(writer, settings=settings)
    assert base["settings"]["splitting"].items() >= settings["splitting"].items()
    assert (base["settings"]["embed"], base["settings"]["cleaning"]) == ("title", {"rules": ["urls", "blank_runs"]})
    path = f"/api/knowledge-bases/{base['id']}"
    wrong = await writer.patch(path, json={"settings": {"splitting": {"chunk_size": 100, "overlap": 80}}})
    problem_of(wrong, 422, "invalid_request")
    wrong = await writer.patch(path, json={"settings": {"embed": "all"}})
    assert problem_of(wrong, 422, "invalid_request")["errors"][0]["field"] == "settings.embed"
    wrong_settings: dict[str, dict[str, Any]] = {
        "settings.splitting.method": {"splitting": {"method": "by_page"}},
        "settings.splitting.max_section_tokens": {"splitting": {"max_section_tokens": 1}},
        "settings.splitting.chunk_size": {"splitting": {"chunk_size": "100"}},
        "settings.fold_traditional": {"fold_traditional": "yes"},
        "settings.cleaning": {"cleaning": "html"},
        "settings.cleaning.rules.1": {"cleaning": {"rules": ["tags", "html"]}},
    }
    for field, refused in wrong_settings.items():
        wrong = await writer.patch(path, json={"settings": refused})
        assert [error["field"] for error in problem_of(wrong, 422, "invalid_request")["errors"]] == [field]
    assert await created(writer.get(path)) == base
