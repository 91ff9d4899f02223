"""Keyset lists: every item once, in order, whatever is added meanwhile."""

import httpx
import pytest

from tests.support.api import (
    create_agent,
    create_knowledge_base,
    create_session,
    created,
    post_message,
    problem_of,
    read_all,
    upload,
)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 200])
async def test_agents_newest_first_without_repeat(client: httpx.AsyncClient, limit: int) -> None:
    ids = [(await create_agent(client, name=f"{n}"))["id"] for n in range(5)]
    assert [agent["id"] for agent in await read_all(client, "/api/agents", limit=limit)] == ids[::-1]


async def test_what_is_added_between_pages_moves_nothing(client: httpx.AsyncClient) -> None:
    ids = [(await create_knowledge_base(client))["id"] for _ in range(4)]
    page = await created(client.get("/api/knowledge-bases", params={"limit": 2}))
    await create_knowledge_base(client)
    rest = await read_all(client, "/api/knowledge-bases", limit=2, cursor=page["next_cursor"])
    assert [item["id"] for item in page["items"] + rest] == ids[::-1]


async def test_sessions_of_one_agent(client: httpx.AsyncClient) -> None:
    agents = [(await create_agent(client))["id"] for _ in range(2)]
    sessions = [(await create_session(client, agents[n % 2]))["id"] for n in range(6)]
    listed = await read_all(client, "/api/sessions", agent_id=agents[0], limit=2)
    assert [session["id"] for session in listed] == sessions[4::-2]
    assert len(await read_all(client, "/api/sessions", limit=4)) == 6


async def test_messages_in_both_orders(client: httpx.AsyncClient) -> None:
    session = await create_session(client)
    for n in range(5):
        await post_message(client, session["id"], str(n))
    path = f"/api/sessions/{session['id']}/messages"
    for limit in (1, 2, 5):
        oldest_first = await read_all(client, path, limit=limit)
        newest_first = await read_all(client, path, limit=limit, order="desc")
        assert [message["content"] for message in oldest_first] == list("01234")
        assert newest_first == oldest_first[::-1]


async def test_documents(client: httpx.AsyncClient) -> None:
    base = await create_knowledge_base(client)
    ids = [(await upload(client, base["id"], f"# {n}".encode()))["id"] for n in range(3)]
    listed = await read_all(client, f"/api/knowledge-bases/{base['id']}/documents", limit=2)
    assert [document["id"] for document in listed] == ids[::-1]


@pytest.mark.parametrize("cursor", ["", "x", "%00", "AAAA", "////", "A" * 500, "ключ", "A" * 21 + "é"])
async def test_a_cursor_that_was_not_given_out_is_refused(client: httpx.AsyncClient, cursor: str) -> None:
    session = await create_session(client)
    for path in ("/api/agents", "/api/sessions", f"/api/sessions/{session['id']}/messages"):
        answer = await client.get(path, params={"cursor": cursor})
        assert problem_of(answer, 422, answer.json()["code"])["code"] in ("invalid_cursor", "invalid_request")
        assert answer.json()["errors"][0]["field"] == "cursor"


@pytest.mark.parametrize(
    ("limit", "status"), [("0", 422), ("1", 200), ("200", 200), ("201", 422), ("x", 422), ("", 422)]
)
async def test_the_limit_has_limits(client: httpx.AsyncClient, limit: str, status: int) -> None:
    answer = await client.get("/api/agents", params={"limit": limit})
    assert answer.status_code == status
    if status == 422:
        assert problem_of(answer, 422, "invalid_request")["errors"][0]["field"] == "limit"
