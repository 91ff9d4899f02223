"""Posting messages, what happens while a session is busy, and cancelling."""

import asyncio
from uuid import UUID

import httpx
import orjson
import pytest

from services.gateway.schemas.sessions import MAX_CONTENT
from shared.contracts.commands import ExecuteRun
from tests.support.api import (
    RunningGateway,
    create_agent,
    create_session,
    created,
    post_message,
    problem_of,
    read_all,
)


async def stored_events(gateway: RunningGateway, session_id: str) -> list[str]:
    rows = await gateway.parts.pool.fetch(
        "SELECT seq, type FROM session_event WHERE session_id = $1 ORDER BY seq", UUID(session_id)
    )
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    return [row["type"] for row in rows]


async def test_a_message_is_stored_with_its_run_events_and_wake_up(database_url: str) -> None:
    # No broker at this address: the wake-up stays where it can be looked at, and posting works all the same.
    gateway = RunningGateway(database_url, "amqp://127.0.0.1:1/")
    await gateway.start()
    client = await gateway.client()
    session = await create_session(client)
    answer = await created(
        client.post(
            f"/api/sessions/{session['id']}/messages", json={"content": "你好"}, headers={"X-Request-ID": "request-7"}
        )
    )
    message, run = answer["message"], answer["run"]
    assert answer["last_seq"] == 0
    assert (message["role"], message["content"], message["seq"]) == ("user", "你好", 1)
    assert message["run_id"] == run["id"]
    assert (run["state"], run["reason"], run["session_id"]) == ("IDLE", None, session["id"])
    assert await stored_events(gateway, session["id"]) == ["message.created", "run.queued"]
    body = await gateway.parts.pool.fetchval("SELECT body::text FROM outbox WHERE subject_id = $1", UUID(run["id"]))
    wake_up = ExecuteRun.model_validate_json(body)
    assert (str(wake_up.run_id), str(wake_up.session_id)) == (run["id"], session["id"])
    assert wake_up.request_id == "request-7"
    assert await created(client.get(f"/api/runs/{run['id']}")) == run
    await gateway.stop()


async def test_last_seq_is_the_one_just_before_the_message(client: httpx.AsyncClient) -> None:
    session = await create_session(client)
    answers = [await post_message(client, session["id"]) for _ in range(3)]
    assert [answer["last_seq"] for answer in answers] == [0, 2, 4]
    assert (await created(client.get(f"/api/sessions/{session['id']}")))["last_seq"] == 6


async def test_messages_posted_at_once_are_put_in_one_order(client: httpx.AsyncClient, gateway: RunningGateway) -> None:
    session = await create_session(client)
    answers = await asyncio.gather(*(post_message(client, session["id"], f"{n}") for n in range(10)))
    assert sorted(answer["message"]["seq"] for answer in answers) == list(range(1, 11))
    assert len(await stored_events(gateway, session["id"])) == 20
    runs = await read_all(client, f"/api/sessions/{session['id']}/runs", limit=3)
    by_seq = sorted(answers, key=lambda answer: answer["message"]["seq"])
    assert [run["id"] for run in runs] == [answer["run"]["id"] for answer in by_seq]


async def test_reject_names_the_run_that_is_in_the_way(client: httpx.AsyncClient) -> None:
    session = await create_session(client)
    first = await post_message(client, session["id"], when_busy="reject")
    path = f"/api/sessions/{session['id']}/messages"
    refused = await client.post(path, json={"content": "?", "when_busy": "reject"})
    assert problem_of(refused, 409, "session_busy")["run_id"] == first["run"]["id"]
    await created(client.post(f"/api/runs/{first['run']['id']}/cancel"))
    await post_message(client, session["id"], when_busy="reject")


async def test_interrupt_cancels_all_that_is_unfinished_and_then_posts(
    client: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    session = await create_session(client)
    earlier = [await post_message(client, session["id"]) for _ in range(2)]
    answer = await post_message(client, session["id"], "Stop!", when_busy="interrupt")
    for before in earlier:
        run = await created(client.get(f"/api/runs/{before['run']['id']}"))
        assert (run["state"], run["reason"]) == ("FINISHED", "cancelled")
    assert (await created(client.get(f"/api/runs/{answer['run']['id']}")))["reason"] is None
    expected = ["message.created", "run.queued"] * 2 + ["run.finished"] * 2 + ["message.created", "run.queued"]
    assert await stored_events(gateway, session["id"]) == expected
    assert answer["last_seq"] == 6


async def test_a_repeated_interrupt_does_not_cancel_its_own_run(client: httpx.AsyncClient) -> None:
    session = await create_session(client)
    await post_message(client, session["id"])
    path, body = f"/api/sessions/{session['id']}/messages", {"content": "Stop!", "when_busy": "interrupt"}
    headers = {"Idempotency-Key": "interrupt"}
    answers = await asyncio.gather(*(created(client.post(path, json=body, headers=headers)) for _ in range(4)))
    assert len({answer["run"]["id"] for answer in answers}) == 1
    assert (await created(client.get(f"/api/runs/{answers[0]['run']['id']}")))["reason"] is None


async def test_cancel_is_harmless_twice_and_at_once(client: httpx.AsyncClient, gateway: RunningGateway) -> None:
    session = await create_session(client)
    run_id = (await post_message(client, session["id"]))["run"]["id"]
    answers = await asyncio.gather(*(client.post(f"/api/runs/{run_id}/cancel") for _ in range(4)))
    assert [answer.status_code for answer in answers] == [202] * 4
    assert {answer.json()["reason"] for answer in answers} == {"cancelled"}
    assert await stored_events(gateway, session["id"]) == ["message.created", "run.queued", "run.finished"]


async def test_cancelling_a_running_run_takes_its_lease_away(
    client: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    session = await create_session(client)
    run_id = UUID((await post_message(client, session["id"]))["run"]["id"])
    await gateway.parts.pool.execute(
        "UPDATE run SET status = 'running', lease_owner = $1, lease_epoch = 1, lease_until = now() + interval '1 hour'"
        " WHERE id = $1",
        run_id,
    )
    await created(client.post(f"/api/runs/{run_id}/cancel"))
    row = await gateway.parts.pool.fetchrow("SELECT status, lease_owner, lease_epoch FROM run WHERE id = $1", run_id)
    assert row is not None
    assert tuple(row) == ("finished", None, 2)


async def test_a_deleted_agent_takes_no_messages_but_its_sessions_can_be_read(client: httpx.AsyncClient) -> None:
    agent = await create_agent(client)
    session = await create_session(client, agent["id"])
    await post_message(client, session["id"])
    assert (await client.delete(f"/api/agents/{agent['id']}")).status_code == 204
    answer = await client.post(f"/api/sessions/{session['id']}/messages", json={"content": "Hello?"})
    problem_of(answer, 409, "agent_deleted")
    assert len(await read_all(client, f"/api/sessions/{session['id']}/messages")) == 1
    problem_of(await client.get(f"/api/agents/{agent['id']}"), 404, "not_found")
    problem_of(await client.post("/api/sessions", json={"agent_id": agent["id"]}), 404, "not_found")


async def test_the_journal_of_a_run_is_listed(client: httpx.AsyncClient, gateway: RunningGateway) -> None:
    session = await create_session(client)
    answer = await post_message(client, session["id"])
    await gateway.parts.pool.execute(
        "INSERT INTO run_step (tenant_id, run_id, n, step, kind, state, message_id, tool_name, arguments, lease_epoch, started_at)"
        " SELECT tenant_id, id, n, 1, 'execute', 'done', $2, 'KnowledgeTool', $3, 1, now() FROM run, generate_series(1, 3) n"
        " WHERE id = $1",
        UUID(answer["run"]["id"]),
        UUID(answer["message"]["id"]),
        {"query": "订单"},
    )
    steps = await read_all(client, f"/api/runs/{answer['run']['id']}/steps", limit=2)
    assert [(step["n"], step["kind"], step["tool_name"], step["arguments"]) for step in steps] == [
        (n, "execute", "KnowledgeTool", {"query": "订单"}) for n in (1, 2, 3)
    ]


async def test_a_full_session_and_a_full_tenant_are_told_to_wait(database_url: str, rabbitmq_url: str) -> None:
    limits = {"runs_per_session": 2, "runs_per_tenant": 4}
    gateway = RunningGateway(database_url, rabbitmq_url, limits=limits)
    await gateway.start()
    client = await gateway.client()
    first, second = await create_session(client), await create_session(client)
    for session in (first, second):
        await post_message(client, session["id"])
        await post_message(client, session["id"])
    refused = await client.post(f"/api/sessions/{first['id']}/messages", json={"content": "more"})
    problem_of(refused, 429, "too_many_runs")
    assert int(refused.headers["retry-after"]) > 0
    other = await gateway.client("other")
    session = await create_session(other)
    await post_message(other, session["id"])
    await post_message(other, session["id"])
    refused = await other.post(f"/api/sessions/{session['id']}/messages", json={"content": "more"})
    problem_of(refused, 429, "session_queue_full")
    assert len(await read_all(other, f"/api/sessions/{session['id']}/messages")) == 2
    await gateway.stop()


async def test_deleting_a_session_takes_everything_of_it(client: httpx.AsyncClient, gateway: RunningGateway) -> None:
    session = await create_session(client)
    answer = await post_message(client, session["id"])
    assert (await client.delete(f"/api/sessions/{session['id']}")).status_code == 204
    problem_of(await client.get(f"/api/runs/{answer['run']['id']}"), 404, "not_found")
    for table in ("chat_message", "run", "session_event"):
        assert await gateway.parts.pool.fetchval(f"SELECT count(*) FROM {table}") == 0


@pytest.mark.parametrize(
    ("content", "status"),
    [("x" * MAX_CONTENT, 202), ("x" * (MAX_CONTENT + 1), 422), ("", 422), (" \n\t", 422), ("a\0b", 422), (7, 422)],
)
async def test_content_at_its_limits(client: httpx.AsyncClient, content: object, status: int) -> None:
    session = await create_session(client)
    answer = await client.post(f"/api/sessions/{session['id']}/messages", json={"content": content})
    assert answer.status_code == status, answer.text[:200]
    if status == 422:
        assert [error["field"] for error in problem_of(answer, 422, "invalid_request")["errors"]] == ["content"]
        assert await read_all(client, f"/api/sessions/{session['id']}/messages") == []
    else:
        messages = await read_all(client, f"/api/sessions/{session['id']}/messages")
        assert messages[0]["content"] == content


@pytest.mark.parametrize(
    "body",
    [
        b'{"content": "\\ud800"}',
        b'{"content": "\xff"}',
        b'{"content": NaN}',
        b"[" * 100_000,
        b'{"content": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
        b'{"content": ' + b"9" * 100_000 + b"}",
        b"",
        b"null",
        '{"content": "x"}'.encode("utf-16"),
    ],
)
async def test_bodies_that_are_no_message_are_invalid_and_no_error_of_ours(
    client: httpx.AsyncClient, body: bytes
) -> None:
    session = await create_session(client)
    headers = {"Content-Type": "application/json"}
    answer = await client.post(f"/api/sessions/{session['id']}/messages", content=body, headers=headers)
    problem_of(answer, 422, "invalid_request")


async def test_message_events_hold_the_message_as_lists_show_it(
    client: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    session = await create_session(client)
    await post_message(client, session["id"], '"quoted" \u2028 \\ 😀')
    payload = await gateway.parts.pool.fetchval("SELECT payload::text FROM session_event WHERE seq = 1")
    messages = await read_all(client, f"/api/sessions/{session['id']}/messages")
    assert orjson.loads(payload) == {"message": messages[0]}
