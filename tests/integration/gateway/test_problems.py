"""Every error is a problem with a stable code, and tells a client nothing that is ours."""

import asyncio
from typing import Any

import asyncpg
import httpx
import pytest

from services.gateway.problems import PROBLEMS
from shared.ids import new_id
from tests.support.api import RunningGateway, create_agent, created, problem_of


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "/api/nothing", 404, "not_found"),
        ("GET", "/api/agents/", 404, "not_found"),
        ("DELETE", "/api/agents", 405, "method_not_allowed"),
        ("POST", "/healthz", 405, "method_not_allowed"),
    ],
)
async def test_what_is_not_routed(client: httpx.AsyncClient, method: str, path: str, status: int, code: str) -> None:
    answer = await client.request(method, path)
    problem_of(answer, status, code)
    if status == 405:
        assert answer.headers["allow"]


async def test_an_error_of_ours_is_told_without_its_cause(
    gateway: RunningGateway, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("secret cause")

    monkeypatch.setattr("services.gateway.routes.agents.store.list_agents", broken)
    answer = await client.get("/api/agents", headers={"X-Request-ID": "mine"})
    problem_of(answer, 500, "internal_error")
    assert "secret" not in answer.text
    assert answer.headers["x-request-id"] == "mine"


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.DeadlockDetectedError("x"),
        asyncpg.ConnectionDoesNotExistError("x"),
        TimeoutError(),
        ConnectionRefusedError(),
    ],
)
async def test_trouble_of_the_database_is_told_as_passing(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def troubled(*_: object) -> None:
        raise error

    monkeypatch.setattr("services.gateway.routes.agents.store.list_agents", troubled)
    answer = await client.get("/api/agents")
    problem_of(answer, 503, "unavailable")
    assert answer.headers["retry-after"]


@pytest.mark.parametrize(
    ("given", "kept"),
    [("abc_DEF-9", True), ("x" * 64, True), ("x" * 65, False), ("a b", False), ("a\nb", False), ("", False)],
)
async def test_request_ids_are_kept_or_made(client: httpx.AsyncClient, given: str, *, kept: bool) -> None:
    answer = await client.get("/healthz", headers={"X-Request-ID": given})
    assert (answer.headers["x-request-id"] == given) is kept
    assert answer.headers["x-request-id"]


AGENT: dict[str, Any] = {"name": "a"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "  "}, "name"),
        ({"name": "x" * 201}, "name"),
        ({"name": "a\0"}, "name"),
        ({"name": None}, "name"),
        (AGENT | {"description": "x" * 2001}, "description"),
        (AGENT | {"system_prompt": "x" * 100_001}, "system_prompt"),
        (AGENT | {"system_prompt": "\0"}, "system_prompt"),
        (AGENT | {"max_steps": 0}, "max_steps"),
        (AGENT | {"max_steps": 21}, "max_steps"),
        (AGENT | {"max_steps": 10**40}, "max_steps"),
        (AGENT | {"max_steps": "many"}, "max_steps"),
        (AGENT | {"options": {"temperature": 2.1}}, "options.temperature"),
        (AGENT | {"options": {"temperature": -0.1}}, "options.temperature"),
        (AGENT | {"options": {"top_p": 1.1}}, "options.top_p"),
        (AGENT | {"options": {"max_tokens": 0}}, "options.max_tokens"),
        (AGENT | {"options": {"stop": ["a"]}}, "options"),
        (AGENT | {"options": {"messages": "x"}}, "options"),
        (AGENT | {"options": {"a\0": 1}}, "options"),
        (AGENT | {"options": {"a": "\0"}}, "options"),
        (AGENT | {"options": {f"o{n}": n for n in range(40)}}, "options"),
        (AGENT | {"tools": ["x"] * 51}, "tools"),
        (AGENT | {"knowledge_base_ids": ["x"]}, "knowledge_base_ids.0"),
        (AGENT | {"unknown": 1}, "unknown"),
        (AGENT | {"knowledge": {"query_rewriting": "often"}}, "knowledge.query_rewriting"),
        (AGENT | {"knowledge": {"min_score": 1.1}}, "knowledge.min_score"),
        (AGENT | {"knowledge": {"min_score": "0.5"}}, "knowledge.min_score"),
        (AGENT | {"knowledge": {"rerank": "magic"}}, "knowledge.rerank"),
        (AGENT | {"knowledge": {"filter": {"tags": []}}}, "knowledge.filter.tags"),
        (AGENT | {"knowledge": {"filter": {"tags": ["ok", "a\0"]}}}, "knowledge.filter.tags.1"),
        (AGENT | {"knowledge": {"filter": {"owner": "me"}}}, "knowledge.filter.owner"),
        (AGENT | {"knowledge": {"filter": {"date_to": "9999-12-31"}}}, "knowledge.filter.date_to"),
        (AGENT | {"knowledge": {"knowledge_base_ids": []}}, "knowledge.knowledge_base_ids"),
    ],
)
async def test_every_field_of_an_agent_has_limits(client: httpx.AsyncClient, body: dict[str, Any], field: str) -> None:
    answer = await client.post("/api/agents", json=body)
    errors = problem_of(answer, 422, "invalid_request")["errors"]
    assert [error["field"] for error in errors] == [field]
    assert all(error["code"] and error["message"] for error in errors)


async def test_how_an_agent_searches_is_shown_whole_and_replaced_whole(client: httpx.AsyncClient) -> None:
    defaults = {"query_rewriting": "off", "min_score": None, "rerank": None, "filter": None}
    assert (await create_agent(client))["knowledge"] == defaults
    document_id = str(new_id())
    how = {
        "query_rewriting": "multi",
        "min_score": 0,
        "filter": {"document_ids": [document_id], "date_to": "2024-12-31"},
    }
    agent = await create_agent(client, knowledge=how)
    assert agent["knowledge"] == defaults | how
    path = f"/api/agents/{agent['id']}"
    renamed = await client.patch(path, json={"name": "b"})
    assert renamed.json()["knowledge"] == defaults | how
    changed = await client.patch(path, json={"knowledge": {"rerank": "lexical"}})
    assert changed.json()["knowledge"] == defaults | {"rerank": "lexical"}
    emptied = await client.patch(path, json={"knowledge": {}})
    assert emptied.json()["knowledge"] == (await client.get(path)).json()["knowledge"] == defaults


async def test_fields_at_their_limits_are_taken(client: httpx.AsyncClient) -> None:
    fields = {
        "name": "名" * 200,
        "description": "x" * 2000,
        "system_prompt": "x" * 100_000,
        "max_steps": 1,
        "options": {"temperature": 2, "top_p": 0, "max_tokens": 1, "seed": 2**63 - 1, "stop": "\n", "logprobs": True},
        "tools": ["KnowledgeTool", "KnowledgeTool"],
    }
    agent = await create_agent(client, **fields)
    assert agent["tools"] == ["KnowledgeTool"]
    assert {name: agent[name] for name in fields if name != "tools"} == {
        k: v for k, v in fields.items() if k != "tools"
    }
    assert agent["model"] == "offline"


async def test_references_of_an_agent_must_exist_and_are_named(client: httpx.AsyncClient) -> None:
    problem = problem_of(await client.post("/api/agents", json=AGENT | {"model": "gpt-9"}), 422, "unknown_model")
    assert "offline" in problem["detail"]
    problem = problem_of(await client.post("/api/agents", json=AGENT | {"tools": ["Rm"]}), 422, "unknown_tool")
    assert "KnowledgeTool" in problem["detail"]


async def test_a_patch_changes_what_it_names_and_nothing_else(client: httpx.AsyncClient) -> None:
    agent = await create_agent(client, description="kept", options={"temperature": 0.5}, tools=[])
    changed = await created(client.patch(f"/api/agents/{agent['id']}", json={"system_prompt": "new", "max_steps": 3}))
    expected = agent | {"system_prompt": "new", "max_steps": 3, "updated_at": changed["updated_at"]}
    assert changed == expected
    cleared = await created(
        client.patch(f"/api/agents/{agent['id']}", json={"options": {}, "tools": None, "description": ""})
    )
    assert (cleared["options"], cleared["description"]) == ({}, "")
    assert cleared["tools"] == ["KnowledgeTool", "CurrentTimeTool"]


async def test_a_large_body_is_refused_before_it_is_read(client: httpx.AsyncClient) -> None:
    large = b'{"name": "' + b"x" * (5 * 1024 * 1024) + b'"}'
    headers = {"Content-Type": "application/json"}
    problem_of(await client.post("/api/agents", content=large, headers=headers), 413, "too_large")


async def test_many_requests_wait_for_few_connections(database_url: str, rabbitmq_url: str) -> None:
    gateway = RunningGateway(database_url, rabbitmq_url, pool={"max_size": 2})
    await gateway.start()
    client = await gateway.client()
    answers = await asyncio.gather(*(client.post("/api/agents", json={"name": f"{n}"}) for n in range(100)))
    assert {answer.status_code for answer in answers} == {201}
    await gateway.stop()


async def test_the_document_lists_every_code(client: httpx.AsyncClient) -> None:
    document = await created(client.get("/openapi.json"))
    text = str(document["paths"])
    for code, (status, _title) in PROBLEMS.items():
        assert f"`{code}`" in text or status == 405, code
    assert document["components"]["securitySchemes"] == {
        "api_key": {"type": "http", "scheme": "bearer", "description": "A key of one tenant: `cm_...`"}
    }
    identifiers = [operation["operationId"] for item in document["paths"].values() for operation in item.values()]
    assert len(identifiers) == len(set(identifiers))


async def test_the_root_leads_to_the_documentation(client: httpx.AsyncClient) -> None:
    answer = await client.get("/")
    assert (answer.status_code, answer.headers["location"]) == (307, "/docs")
    assert (await client.get("/docs")).status_code == 200


async def test_a_body_that_is_not_sent_as_json_is_told_how(client: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}  # what curl -d sends by itself
    answer = await client.post("/api/knowledge-bases", content=b'{"name": "Handbook"}', headers=headers)
    problem = problem_of(answer, 422, "invalid_request")
    assert "Content-Type: application/json" in problem["detail"]
