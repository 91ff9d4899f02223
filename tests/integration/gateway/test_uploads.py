"""Uploads that are refused: with which problem, and that they leave nothing."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from shared.contracts.media import SUPPORTED_FORMATS
from tests.support.api import RunningGateway, create_knowledge_base, problem_of, upload

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("files", "status", "code"),
    [
        ({"files": ("a.png", b"\x89PNG", "image/png")}, 415, "unsupported_media_type"),
        ({"files": ("a.doc", b"\xd0\xcf", "text/plain")}, 415, "unsupported_media_type"),
        ({"files": ("a.md", b"")}, 422, "empty_file"),
        ({"files": ("a.md", b"x" * (3 * MIB + 1))}, 413, "too_large"),
        ([("files", (f"{n}.md", b"x")) for n in range(4)], 400, "malformed_request"),
        ([("files", ("a.md", b"good")), ("files", ("b.exe", b"bad"))], 415, "unsupported_media_type"),
    ],
)
async def test_files_that_are_refused_leave_nothing(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway, files: Any, status: int, code: str
) -> None:
    base = await create_knowledge_base(writer)
    answer = await writer.post(f"/api/knowledge-bases/{base['id']}/documents", files=files)
    problem = problem_of(answer, status, code)
    if status == 415:
        assert SUPPORTED_FORMATS in problem["detail"]
    for table in ("document", "document_blob", "outbox", "knowledge_base_event"):
        assert await quiet_gateway.parts.pool.fetchval(f"SELECT count(*) FROM {table}") == 0


@pytest.mark.parametrize(
    ("files", "data", "field", "told"),
    [
        ({"files": ("a.md", b"x")}, {"tag": "manual"}, "tag", "There are: files, tags, date."),
        ({"files": ("a.md", b"x")}, {"tags": "a", "a\u202eb": ""}, "'a\\u202eb'", "unknown"),
        ([("files", ("a.md", b"x")), ("document", ("b.md", b"y"))], {}, "document", "unknown"),
        ([("files", ("a.md", b"x")), ("tags", ("b.md", b"y"))], {}, "tags", "must not be a file"),
        ({"files": ("a.md", b"x")}, {"file": "text"}, "file", "must be a file"),
    ],
)
async def test_fields_that_are_not_known_are_refused_by_name(
    writer: httpx.AsyncClient, quiet_gateway: RunningGateway, files: Any, data: Any, field: str, told: str
) -> None:
    base = await create_knowledge_base(writer)
    answer = await writer.post(f"/api/knowledge-bases/{base['id']}/documents", files=files, data=data)
    problem = problem_of(answer, 422, "invalid_request")
    assert [(error["field"], error["code"]) for error in problem["errors"]] == [(field, "unknown_field")]
    assert told in problem["detail"]
    assert await quiet_gateway.parts.pool.fetchval("SELECT count(*) FROM document") == 0


async def test_new_content_takes_a_file_and_no_labels(writer: httpx.AsyncClient) -> None:
    base = await create_knowledge_base(writer)
    document = await upload(writer, base["id"])
    path = f"/api/documents/{document['id']}/content"
    answer = await writer.put(path, files={"file": ("a.md", b"x")}, data={"tags": "a"})
    assert "There are: files." in problem_of(answer, 422, "invalid_request")["detail"]
    for field in ("file", "files"):
        assert (await writer.put(path, files={field: ("a.md", field.encode())})).status_code == 202


async def test_names_that_are_shown_in_another_order_than_they_are_read_are_put_right(
    writer: httpx.AsyncClient,
) -> None:
    base = await create_knowledge_base(writer)
    document = await upload(writer, base["id"], filename="a\u202efdp.md")
    assert document["filename"] == "afdp.md"
    renamed = await writer.patch(f"/api/documents/{document['id']}", json={"filename": "\u2067b\u2069.md"})
    assert renamed.json()["filename"] == "b.md"


async def test_a_request_that_is_too_large_is_refused_by_what_it_announces_and_by_what_arrives(
    writer: httpx.AsyncClient,
) -> None:
    base = await create_knowledge_base(writer)
    path = f"/api/knowledge-bases/{base['id']}/documents"
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.md"\r\n\r\n'
        while True:
            sent += MIB
            yield b"x" * MIB

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    problem_of(await writer.post(path, content=endless(), headers=headers), 413, "too_large")
    assert sent <= 7 * MIB
    sent = 0
    announced = {**headers, "Content-Length": str(6 * MIB)}
    problem_of(await writer.post(path, content=endless(), headers=announced), 413, "too_large")
    assert sent <= MIB


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("multipart/form-data", b"x", 400),
        ("multipart/form-data; boundary=b", b"no parts", 400),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="files"\r\n\r\nx\r\n--b--\r\n',
            422,
        ),
        ("multipart/form-data; boundary=b", b"--b--\r\n", 422),
        ("application/json", b"{}", 415),
        ("text/markdown", b"# x", 415),
    ],
)
async def test_uploads_that_can_not_be_read(
    writer: httpx.AsyncClient, content_type: str, body: bytes, status: int
) -> None:
    base = await create_knowledge_base(writer)
    path = f"/api/knowledge-bases/{base['id']}/documents"
    answer = await writer.post(path, content=body, headers={"Content-Type": content_type})
    problem_of(answer, status, answer.json()["code"])


async def test_overlapping_uploads_at_once_wait_for_each_other_and_nobody_is_refused(writer: httpx.AsyncClient) -> None:
    base = await create_knowledge_base(writer)
    path = f"/api/knowledge-bases/{base['id']}/documents"
    contents = [f"text {n}".encode() for n in range(12)]

    async def upload_three(start: int) -> int:
        chosen = [contents[(start + step * 5) % len(contents)] for step in range(3)]
        files = [("files", (f"{start}-{n}.md", content)) for n, content in enumerate(chosen)]
        return (await writer.post(path, files=files)).status_code

    for _ in range(5):
        assert await asyncio.gather(*(upload_three(start) for start in range(12))) == [202] * 12
    listed = await writer.get(path, params={"limit": 50})
    assert len(listed.json()["items"]) == 12
