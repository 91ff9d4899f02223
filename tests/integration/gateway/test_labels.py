"""Tags and dates of documents: given with files or later, checked, shown and listed by."""

from typing import Any

import httpx
import pytest

from tests.integration.gateway.test_documents import events_of, set_state
from tests.support.api import Json, RunningGateway, create_knowledge_base, created, problem_of, read_all, upload


async def upload_with(client: httpx.AsyncClient, base: Json, content: bytes, **fields: Any) -> httpx.Response:
    path = f"/api/knowledge-bases/{base['id']}/documents"
    return await client.post(path, files=[("files", ("a.md", content))], data=fields)


async def test_files_are_uploaded_with_labels_for_all_of_them(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway
) -> None:
    base = await create_knowledge_base(writer)
    files = [("files", (f"{n}.md", str(n).encode())) for n in range(2)]
    form = {"tags": ["manual, 2024", " 手册，", "manual", "Cafe\u0301"], "date": "2024-12-31"}
    path = f"/api/knowledge-bases/{base['id']}/documents"
    documents = (await created(writer.post(path, files=files, data=form)))["items"]
    for document in documents:
        assert (document["tags"], document["date"]) == (["manual", "2024", "手册", "Caf\u00e9"], "2024-12-31")
        assert document["warnings"] == []
        assert await created(writer.get(f"/api/documents/{document['id']}")) == document
    assert [document for _, document in await events_of(quiet_gateway, base["id"])] == documents


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"tags": [str(n) for n in range(33)]}, "tags"),
        ({"tags": ",".join(str(n) for n in range(33))}, "tags"),
        ({"tags": "x" * 65}, "tags.0"),
        ({"tags": ["good", "a\nb"]}, "tags.1"),
        ({"date": "yesterday"}, "date"),
        ({"date": "2024-02-30"}, "date"),
        ({"date": "1700000000"}, "date"),
        ({"date": "0"}, "date"),
        ({"date": "0001-01-01"}, "date"),
        ({"date": "9999-12-31"}, "date"),
        ({"date": ["2024-12-31", "2024-12-31"]}, "date"),
        ({"date": ["", "2024-12-31"]}, "date"),
    ],
)
async def test_labels_that_are_none_are_refused_by_name(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway, form: Json, field: str
) -> None:
    base = await create_knowledge_base(writer)
    problem = problem_of(await upload_with(writer, base, b"text", **form), 422, "invalid_request")
    assert problem["errors"][0]["field"] == field
    assert await quiet_gateway.parts.pool.fetchval("SELECT count(*) FROM document") == 0


@pytest.mark.parametrize("day", ["0001-01-02", "9999-12-30"])
async def test_the_first_and_the_last_day_are_shown_as_they_were_given(writer: httpx.AsyncClient, day: str) -> None:
    base = await create_knowledge_base(writer)
    [document] = (await upload_with(writer, base, b"text", date=day)).json()["items"]
    assert document["date"] == day
    assert (await created(writer.patch(f"/api/documents/{document['id']}", json={"date": day})))["date"] == day


async def test_the_same_bytes_keep_the_document_and_its_labels(writer: httpx.AsyncClient) -> None:
    base = await create_knowledge_base(writer)
    [first] = (await upload_with(writer, base, b"text", tags="a", date="2024-01-01")).json()["items"]
    assert (await upload_with(writer, base, b"text", tags="b")).json()["items"] == [first]


async def test_labels_are_part_of_what_an_idempotency_key_stands_for(writer: httpx.AsyncClient) -> None:
    base = await create_knowledge_base(writer)
    path, key = f"/api/knowledge-bases/{base['id']}/documents", {"Idempotency-Key": "k"}
    files = [("files", ("a.md", b"text"))]
    first = await created(writer.post(path, files=files, data={"tags": "a"}, headers=key))
    assert await created(writer.post(path, files=files, data={"tags": "a"}, headers=key)) == first
    problem_of(await writer.post(path, files=files, data={"tags": "b"}, headers=key), 409, "idempotency_conflict")


async def test_labels_and_name_are_changed_without_touching_the_rest(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway
) -> None:
    base = await create_knowledge_base(writer)
    document = await upload(writer, base["id"])
    await set_state(quiet_gateway, document["id"], "ready", current_version=1, chunk_count=2)
    path = f"/api/documents/{document['id']}"
    changed = await created(writer.patch(path, json={"tags": [" a ", "b", "a"], "date": "2024-12-31"}))
    assert (changed["tags"], changed["date"], changed["filename"]) == (["a", "b"], "2024-12-31", "a.md")
    assert (changed["state"], changed["version"], changed["chunk_count"]) == ("ready", 1, 2)
    renamed = await created(writer.patch(path, json={"filename": "../手册.md", "date": None}))
    assert (renamed["tags"], renamed["date"], renamed["filename"]) == (["a", "b"], None, "手册.md")
    assert [event for _, event in await events_of(quiet_gateway, base["id"])][1:] == [changed, renamed]
    emptied = await created(writer.patch(path, json={"tags": []}))
    assert emptied["tags"] == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"tags": [""]}, "tags.0"),
        ({"tags": None}, "tags"),
        ({"tags": ["x"] * 33}, "tags"),
        ({"date": 3}, "date"),
        ({"date": "0"}, "date"),
        ({"date": "0001-01-01"}, "date"),
        ({"date": "9999-12-31"}, "date"),
        ({"filename": ""}, "filename"),
        ({"state": "ready"}, "state"),
    ],
)
async def test_changes_that_are_none_are_refused_by_name(writer: httpx.AsyncClient, body: Json, field: str) -> None:
    base = await create_knowledge_base(writer)
    document = await upload(writer, base["id"])
    path = f"/api/documents/{document['id']}"
    assert problem_of(await writer.patch(path, json=body), 422, "invalid_request")["errors"][0]["field"] == field
    assert await created(writer.get(path)) == document


async def test_a_name_of_another_kind_of_file_is_refused(writer: httpx.AsyncClient) -> None:
    base = await create_knowledge_base(writer)
    document = await upload(writer, base["id"])
    answer = await writer.patch(f"/api/documents/{document['id']}", json={"filename": "a.exe"})
    problem_of(answer, 415, "unsupported_media_type")


async def test_documents_are_listed_by_state_and_tags(writer: httpx.AsyncClient, quiet_gateway: RunningGateway) -> None:
    base, other = await create_knowledge_base(writer), await create_knowledge_base(writer)
    await upload_with(writer, other, b"elsewhere", tags="a,b")
    ids = []
    for number, tags in enumerate(("", "a", "a,b", "b,c", "a,b,c")):
        [document] = (await upload_with(writer, base, str(number).encode(), tags=tags)).json()["items"]
        ids.append(document["id"])
    for number in (1, 3, 4):
        await set_state(quiet_gateway, ids[number], "failed")
    path = f"/api/knowledge-bases/{base['id']}/documents"

    async def numbers(**params: Any) -> list[int]:
        return [ids.index(document["id"]) for document in await read_all(writer, path, limit=2, **params)]

    assert await numbers() == [4, 3, 2, 1, 0]
    assert await numbers(state="failed") == [4, 3, 1]
    assert await numbers(state="ready") == []
    assert await numbers(tag="a") == [4, 2, 1]
    assert await numbers(tag=["a", "b"]) == [4, 2]
    assert await numbers(tag="a", state="failed") == [4, 1]
    assert await numbers(tag="missing") == []
    assert (
        problem_of(await writer.get(path, params={"state": "lost"}), 422, "invalid_request")["errors"][0]["field"]
        == "state"
    )
