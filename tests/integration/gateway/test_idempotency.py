"""Idempotency keys: one creation and one answer, whatever a client repeats."""

import asyncio
from datetime import timedelta
from typing import Any

import httpx
import pytest

from services.gateway.store.idempotency import SQL
from tests.support.api import (
    RunningGateway,
    create_knowledge_base,
    create_session,
    problem_of,
    read_all,
)

Request = tuple[str, dict[str, Any], dict[str, Any], str]


async def requests(client: httpx.AsyncClient) -> list[Request]:
    """For every POST that creates: path, a body, another body, and where the creations are listed."""
    session = await create_session(client)
    base = await create_knowledge_base(client)
    documents = f"/api/knowledge-bases/{base['id']}/documents"
    messages = f"/api/sessions/{session['id']}/messages"
    return [
        ("/api/agents", {"json": {"name": "a"}}, {"json": {"name": "b"}}, "/api/agents"),
        (
            "/api/sessions",
            {"json": {"agent_id": session["agent_id"]}},
            {"json": {"agent_id": session["agent_id"], "title": "b"}},
            "/api/sessions",
        ),
        ("/api/knowledge-bases", {"json": {"name": "a"}}, {"json": {"name": "b"}}, "/api/knowledge-bases"),
        (messages, {"json": {"content": "a"}}, {"json": {"content": "b"}}, messages),
        (documents, {"files": {"files": ("a.md", b"a")}}, {"files": {"files": ("a.md", b"b")}}, documents),
    ]


async def test_the_same_request_answers_the_same_and_another_is_refused(client: httpx.AsyncClient) -> None:
    for number, (path, body, other, listed_at) in enumerate(await requests(client)):
        headers = {"Idempotency-Key": f"key-{number}"}
        before = len(await read_all(client, listed_at))
        first = await client.post(path, headers=headers, **body)
        again = await client.post(path, headers=headers, **body)
        assert first.is_success, first.text
        assert (again.status_code, again.content) == (first.status_code, first.content), path
        problem_of(await client.post(path, headers=headers, **other), 409, "idempotency_conflict")
        assert len(await read_all(client, listed_at)) == before + 1


async def test_of_parallel_requests_one_creates_and_all_answer_it(client: httpx.AsyncClient) -> None:
    for number, (path, body, _other, listed_at) in enumerate(await requests(client)):
        headers = {"Idempotency-Key": f"key-{number}"}
        before = len(await read_all(client, listed_at))
        answers = await asyncio.gather(*(client.post(path, headers=headers, **body) for _ in range(8)))
        assert {answer.status_code for answer in answers} in ({201}, {202}), path
        assert len({answer.content for answer in answers}) == 1
        assert len(await read_all(client, listed_at)) == before + 1


async def test_a_key_belongs_to_one_path(client: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "one"}
    assert (await client.post("/api/agents", json={"name": "x"}, headers=headers)).status_code == 201
    answer = await client.post("/api/knowledge-bases", json={"name": "x"}, headers=headers)
    problem_of(answer, 409, "idempotency_conflict")


async def test_a_refused_request_leaves_its_key_unused(client: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "one"}
    refused = await client.post("/api/agents", json={"name": "x", "model": "none"}, headers=headers)
    problem_of(refused, 422, "unknown_model")
    assert (await client.post("/api/agents", json={"name": "x"}, headers=headers)).status_code == 201


async def test_defaults_that_are_written_out_are_the_same_body(client: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "one"}
    first = await client.post("/api/agents", json={"name": "x"}, headers=headers)
    again = await client.post("/api/agents", json={"max_steps": 20, "name": "x"}, headers=headers)
    assert again.content == first.content


async def test_an_expired_key_is_a_new_one_and_is_swept(client: httpx.AsyncClient, gateway: RunningGateway) -> None:
    pool = gateway.parts.pool
    headers = {"Idempotency-Key": "old"}
    first = await client.post("/api/agents", json={"name": "x"}, headers=headers)
    await pool.execute("UPDATE idempotency_key SET created_at = now() - interval '25 hours'")
    second = await client.post("/api/agents", json={"name": "other body"}, headers=headers)
    assert second.status_code == 201
    assert second.json()["id"] != first.json()["id"]
    await pool.execute("UPDATE idempotency_key SET created_at = now() - interval '25 hours'")
    await client.post("/api/agents", json={"name": "x"}, headers={"Idempotency-Key": "fresh"})
    await pool.execute(SQL["forget_idempotency_keys"], timedelta(hours=24))
    assert [row["key"] for row in await pool.fetch("SELECT key FROM idempotency_key")] == ["fresh"]


@pytest.mark.parametrize("key", [b"", b"with space", b"x" * 256, "ключ".encode(), b"\x7f"])
async def test_a_malformed_key_is_refused(client: httpx.AsyncClient, key: bytes) -> None:
    answer = await client.post("/api/agents", json={"name": "x"}, headers={b"Idempotency-Key": key})
    problem_of(answer, 422, "invalid_request")
    assert await read_all(client, "/api/agents") == []
