"""Steps whose outcome is unknown: what a user may say of them, once; and the operator's tools as clients see them."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import orjson
import pytest

from shared.conversation import Advance, Ending, advance_run, claim_runs, outcome_unknown, step_event
from shared.db.pool import Pool
from shared.ids import new_id
from tests.support.api import (
    Json,
    RunningGateway,
    create_agent,
    create_session,
    created,
    post_message,
    problem_of,
    read_all,
)
from tests.support.stack import Stack

TOOLS = """
[http.ledger]
description = "Books an amount."
url = "http://127.0.0.1:9/record"
effect = "once"
api_key_env = "CHATMIND_TEST_UNSET_KEY"
parameters = '{"type": "object"}'
"""


async def unknown_step(pool: Pool, client: httpx.AsyncClient, *, ended: bool = True) -> Json:
    """A run whose second step is unknown."""
    session = await create_session(client)
    run: Json = (await post_message(client, session["id"], "book it"))["run"]
    async with pool.acquire() as connection:
        [claimed] = await claim_runs(connection, new_id(), timedelta(seconds=60), 1)
        assert str(claimed.run_id) == run["id"]
        for advance in _steps(claimed.run_id):
            await advance_run(connection, claimed.run_id, claimed.epoch, claimed.session_id, advance)
        if ended:
            end = Advance(ending=Ending("completed", {}))
            await advance_run(connection, claimed.run_id, claimed.epoch, claimed.session_id, end)
    return run


def _steps(run_id: UUID) -> list[Advance]:
    error = outcome_unknown("no result within 30 s")
    common = {"step": 1, "started_at": datetime.now(UTC)}
    reply = {
        "id": new_id(), "role": "assistant", "content": "",
        "tool_calls": [{"id": "c", "name": "ledger", "arguments": "{}"}],
    }  # fmt: skip
    think = {**common, "n": 1, "kind": "think", "state": "done", "message_id": reply["id"]}
    result = {
        "id": new_id(), "role": "tool", "content": "{}", "tool_call_id": "c", "tool_name": "ledger",
        "metadata": {"outcome": "unknown"},
    }  # fmt: skip
    execute = {
        **common, "n": 2, "kind": "execute", "state": "unknown", "message_id": result["id"], "tool_name": "ledger",
        "tool_call_id": "c", "error": error.model_dump(),
    }  # fmt: skip
    event = step_event("step.unknown", run_id, execute)
    return [Advance("EXECUTING", 1, reply, think), Advance("THINKING", 2, result, execute, events=(event,))]


async def resolve(client: httpx.AsyncClient, run: Json, n: int = 2, /, **body: Any) -> httpx.Response:
    return await client.post(f"/api/runs/{run['id']}/steps/{n}/resolve", json=body)


async def events(pool: Pool, run: Json) -> list[tuple[str, Json]]:
    rows = await pool.fetch(
        "SELECT type, payload FROM session_event WHERE session_id = $1 ORDER BY seq", UUID(run["session_id"])
    )
    return [(row["type"], orjson.loads(row["payload"])) for row in rows]


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("said", [{"outcome": "done", "result": "No. 17"}, {"outcome": "failed"}])
async def test_a_decision_is_recorded_with_who_and_when(
    pool: Pool, client: httpx.AsyncClient, said: dict[str, str], ended: bool
) -> None:
    run = await unknown_step(pool, client, ended=ended)
    step = await created(resolve(client, run, 2, **said))

    assert step["state"] == said["outcome"]
    resolution = step["resolution"]
    assert (resolution["outcome"], resolution["result"]) == (said["outcome"], said.get("result"))
    assert resolution["by"]["name"] == "test"
    assert UUID(resolution["by"]["id"])
    assert datetime.fromisoformat(resolution["at"]) <= datetime.now(UTC) + timedelta(seconds=5)
    assert (await read_all(client, f"/api/runs/{run['id']}/steps"))[1] == step
    [message] = [
        message
        for message in await read_all(client, f"/api/sessions/{run['session_id']}/messages")
        if message["role"] == "tool"
    ]
    assert message["metadata"] == {"outcome": "unknown", "resolution": resolution}
    kind, fields = (await events(pool, run))[-1]
    assert kind == "step.resolved"
    assert (fields["run_id"], fields["n"], fields["resolution"]) == (run["id"], 2, resolution)


async def test_the_same_again_is_harmless_and_another_decision_is_refused(
    pool: Pool, client: httpx.AsyncClient
) -> None:
    run = await unknown_step(pool, client)
    first = await created(resolve(client, run, outcome="done", result="No. 17"))
    again = await resolve(client, run, outcome="done", result="No. 17")
    assert (again.status_code, again.json()) == (200, first)
    problem_of(await resolve(client, run, outcome="failed"), 409, "step_not_unknown")
    problem_of(await resolve(client, run, outcome="done"), 409, "step_not_unknown")
    assert [kind for kind, _ in await events(pool, run)].count("step.resolved") == 1


async def test_of_two_decisions_at_once_one_counts(pool: Pool, client: httpx.AsyncClient) -> None:
    run = await unknown_step(pool, client)
    answers = await asyncio.gather(
        *(resolve(client, run, outcome=outcome) for outcome in ("done", "failed", "done", "failed"))
    )
    assert sorted(answer.status_code for answer in answers) == [200, 200, 409, 409]
    assert [kind for kind, _ in await events(pool, run)].count("step.resolved") == 1


async def test_what_can_not_be_decided(pool: Pool, client: httpx.AsyncClient, stranger: httpx.AsyncClient) -> None:
    run = await unknown_step(pool, client)
    problem_of(await resolve(client, run, 1, outcome="done"), 409, "step_not_unknown")
    problem_of(await resolve(client, run, 3, outcome="done"), 404, "not_found")
    problem_of(await resolve(client, {"id": str(new_id())}, outcome="done"), 404, "not_found")
    problem_of(await resolve(stranger, run, outcome="done"), 404, "not_found")
    for body in ({}, {"outcome": "unknown"}, {"outcome": "done", "result": "a\0b"}, {"outcome": "done", "by": "me"}):
        problem_of(await resolve(client, run, 2, **body), 422, "invalid_request")
    for n in (0, 2**31):
        problem_of(await resolve(client, run, n, outcome="done"), 422, "invalid_request")
    assert [step["state"] for step in await read_all(client, f"/api/runs/{run['id']}/steps")] == ["done", "unknown"]


async def test_the_operators_tools_are_listed_and_can_be_given_to_agents(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "tools.toml").write_text(TOOLS)
    gateway = RunningGateway(database_url, "amqp://127.0.0.1:1/", tools_file=tmp_path / "tools.toml")
    await gateway.start()
    try:
        client = await gateway.client()
        tools = {tool["name"]: tool for tool in (await created(client.get("/api/tools")))["items"]}
        assert {name: tool["effect"] for name, tool in tools.items()} == {
            "KnowledgeTool": "read", "CurrentTimeTool": "read", "ledger": "once",
        }  # fmt: skip
        assert tools["ledger"]["usable"] is False
        assert "CHATMIND_TEST_UNSET_KEY is not set" in tools["ledger"]["problem"]
        assert (await create_agent(client, tools=["ledger"]))["tools"] == ["ledger"]
        assert (await create_agent(client))["tools"] == ["KnowledgeTool", "CurrentTimeTool"]
        refused = await client.post("/api/agents", json={"name": "a", "tools": ["no_such_tool"]})
        assert "ledger" in problem_of(refused, 422, "unknown_tool")["errors"][0]["message"]
    finally:
        await gateway.stop()


def test_a_wrong_tools_file_ends_the_start(stack: Stack, database_url: str, rabbitmq_url: str, tmp_path: Path) -> None:
    (tmp_path / "tools.toml").write_text(TOOLS.replace("http.ledger", "http.KnowledgeTool"))
    environment = {"DATABASE_URL": database_url, "RABBITMQ_URL": rabbitmq_url}
    process = stack.start_service(
        "services.gateway.main", {**environment, "CHATMIND_TOOLS_FILE": str(tmp_path / "tools.toml")}
    )
    assert process.process.wait(30) == 2
    assert "[http.KnowledgeTool] name: KnowledgeTool is a tool that comes with ChatMind" in process.log_tail()
