"""A session that is busy, through two gateways at once: who waits, who is refused, who makes way, and which place a run has."""

import asyncio
import random
from collections.abc import AsyncIterator
from uuid import UUID

import httpx
import orjson
import pytest

from shared.db.pool import Pool
from tests.integration.gateway.pairs import clients_of_both, two_gateways
from tests.support.api import Json, RunningGateway, create_session, created, post_message, problem_of, read_all


@pytest.fixture
async def gateways(database_url: str) -> AsyncIterator[tuple[RunningGateway, RunningGateway]]:
    async with two_gateways(database_url) as both:
        yield both


@pytest.fixture
async def clients(gateways: tuple[RunningGateway, RunningGateway]) -> list[httpx.AsyncClient]:
    return await clients_of_both(gateways)


@pytest.fixture
def pool(gateways: tuple[RunningGateway, RunningGateway]) -> Pool:
    return gateways[0].parts.pool


async def events_of(pool: Pool, session_id: str) -> list[tuple[str, Json]]:
    rows = await pool.fetch(
        "SELECT seq, type, payload FROM session_event WHERE session_id = $1 ORDER BY seq", UUID(session_id)
    )
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    last_seq = await pool.fetchval("SELECT last_seq FROM chat_session WHERE id = $1", UUID(session_id))
    assert last_seq == len(rows)
    return [(row["type"], orjson.loads(row["payload"])) for row in rows]


async def places_told(pool: Pool, session_id: str) -> dict[str, int]:
    """By run: the place that clients were told last."""
    events = await events_of(pool, session_id)
    return {fields["run_id"]: fields["position"] for kind, fields in events if kind == "run.queued"}


async def unfinished(client: httpx.AsyncClient, session_id: str) -> list[Json]:
    return [run for run in await read_all(client, f"/api/sessions/{session_id}/runs") if run["reason"] is None]


async def test_messages_at_both_gateways_wait_in_one_line(clients: list[httpx.AsyncClient], pool: Pool) -> None:
    session = await create_session(clients[0])
    answers = await asyncio.gather(*(post_message(clients[n % 2], session["id"], f"{n}") for n in range(12)))
    assert sorted(answer["run"]["position"] for answer in answers) == list(range(12))
    in_line = await unfinished(clients[1], session["id"])
    assert [run["position"] for run in in_line] == list(range(12))
    by_id = {answer["run"]["id"]: answer["run"]["position"] for answer in answers}
    assert {run["id"]: run["position"] for run in in_line} == by_id == await places_told(pool, session["id"])


async def test_those_behind_a_run_that_ends_are_told_their_new_places(
    clients: list[httpx.AsyncClient], pool: Pool
) -> None:
    session = await create_session(clients[0])
    runs = [(await post_message(clients[n % 2], session["id"]))["run"]["id"] for n in range(4)]
    before = len(await events_of(pool, session["id"]))
    cancelled = await created(clients[1].post(f"/api/runs/{runs[1]}/cancel"))
    assert (cancelled["reason"], cancelled["position"]) == ("cancelled", 0)
    news = (await events_of(pool, session["id"]))[before:]
    assert [kind for kind, _ in news] == ["run.finished", "run.queued", "run.queued"]
    assert [(fields["run_id"], fields["position"]) for _, fields in news[1:]] == [(runs[2], 1), (runs[3], 2)]
    assert [run["position"] for run in await unfinished(clients[0], session["id"])] == [0, 1, 2]
    await created(clients[0].post(f"/api/runs/{runs[3]}/cancel"))
    assert (await events_of(pool, session["id"]))[-1][0] == "run.finished", "nobody is behind the last one"


@pytest.mark.parametrize("seed", range(3))
async def test_what_is_told_stays_true_whatever_happens_at_once(
    clients: list[httpx.AsyncClient], pool: Pool, seed: int
) -> None:
    chance = random.Random(seed)
    session = await create_session(clients[0])
    posted = [(await post_message(clients[0], session["id"]))["run"]["id"] for _ in range(5)]

    async def post(client: httpx.AsyncClient) -> None:
        posted.append((await post_message(client, session["id"]))["run"]["id"])

    async def cancel(client: httpx.AsyncClient) -> None:
        await created(client.post(f"/api/runs/{chance.choice(posted)}/cancel"))

    for _ in range(6):
        actions = [chance.choice((post, post, cancel)) for _ in range(8)]
        await asyncio.gather(*(action(chance.choice(clients)) for action in actions))
        in_line = await unfinished(clients[0], session["id"])
        told = await places_told(pool, session["id"])
        assert [run["position"] for run in in_line] == list(range(len(in_line)))
        assert [told[run["id"]] for run in in_line] == list(range(len(in_line)))


async def test_of_two_who_want_an_idle_session_one_is_refused_and_told_the_run(
    clients: list[httpx.AsyncClient], pool: Pool
) -> None:
    for _ in range(5):
        session = await create_session(clients[0])
        path, body = f"/api/sessions/{session['id']}/messages", {"content": "x", "when_busy": "reject"}
        answers = await asyncio.gather(*(client.post(path, json=body) for client in clients * 2))
        accepted = [answer.json()["run"]["id"] for answer in answers if answer.status_code == 202]
        assert len(accepted) == 1
        for answer in answers:
            if answer.status_code != 202:
                assert problem_of(answer, 409, "session_busy")["run_id"] == accepted[0]
        assert [kind for kind, _ in await events_of(pool, session["id"])] == ["message.created", "run.queued"]


async def test_of_many_who_interrupt_the_last_stands(clients: list[httpx.AsyncClient], pool: Pool) -> None:
    session = await create_session(clients[0])
    for n in range(5):
        await post_message(clients[n % 2], session["id"])
    before = len(await events_of(pool, session["id"]))
    answers = await asyncio.gather(
        *(post_message(clients[n % 2], session["id"], when_busy="interrupt") for n in range(6))
    )
    runs = await read_all(clients[0], f"/api/sessions/{session['id']}/runs")
    in_line = [run for run in runs if run["reason"] is None]
    last = max(answers, key=lambda answer: answer["message"]["seq"])
    assert in_line[-1]["id"] == last["run"]["id"]
    assert [run["position"] for run in in_line] == list(range(len(in_line)))
    told = await places_told(pool, session["id"])
    assert [told[run["id"]] for run in in_line] == list(range(len(in_line)))
    news = [kind for kind, _ in (await events_of(pool, session["id"]))[before:]]
    assert news[:5] == ["run.finished"] * 5, "nobody is told a place that is taken from him at once"


async def test_one_key_at_two_gateways_makes_one_run(clients: list[httpx.AsyncClient], pool: Pool) -> None:
    for n in range(10):
        session = await create_session(clients[0])
        path, headers = f"/api/sessions/{session['id']}/messages", {"Idempotency-Key": f"key-{n}"}
        answers = await asyncio.gather(
            *(client.post(path, json={"content": "x"}, headers=headers) for client in clients)
        )
        assert [answer.status_code for answer in answers] == [202, 202]
        assert answers[0].content == answers[1].content
        assert len(await events_of(pool, session["id"])) == 2


async def test_a_run_that_has_begun_goes_before_those_that_wait(clients: list[httpx.AsyncClient], pool: Pool) -> None:
    session = await create_session(clients[0])
    runs = [(await post_message(clients[0], session["id"]))["run"]["id"] for _ in range(2)]
    await pool.execute(
        "UPDATE run SET status = 'running', lease_owner = id, lease_epoch = 1, lease_until = now() + interval '1 hour'"
        " WHERE id = $1",
        UUID(runs[0]),
    )
    assert [run["position"] for run in await unfinished(clients[0], session["id"])] == [0, 1]
    assert (await post_message(clients[1], session["id"]))["run"]["position"] == 2
    await created(clients[0].post(f"/api/runs/{runs[0]}/cancel"))
    assert [run["position"] for run in await unfinished(clients[0], session["id"])] == [0, 1]
