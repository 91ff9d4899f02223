"""Runs through a real runner process: what is stored, what clients see, what is never asked twice."""

import asyncio
import itertools
import time
from typing import Any
from uuid import UUID

import aio_pika
import asyncpg
import orjson
import pytest

from shared.db.pool import Pool
from shared.topology import DEAD_LETTERS, RUNS
from tests.integration.agent_runner.conftest import StartRunner
from tests.support.retrieval_double import RetrievalDouble
from tests.support.scripted_model import ScriptedModel
from tests.support.seed import SeededSession, post, seed_session
from tests.support.stack import ServiceProcess
from tests.support.waiting import eventually


async def finished(pool: Pool, run_id: UUID, *, within: float = 45.0) -> asyncpg.Record:
    """The run, once it has ended."""

    async def probe() -> asyncpg.Record | None:
        return await pool.fetchrow("SELECT * FROM run WHERE id = $1 AND status = 'finished'", run_id)

    row = await eventually(probe, within=within)
    assert row is not None
    return row


async def events(pool: Pool, session: SeededSession) -> list[tuple[int, str, dict[str, Any]]]:
    rows = await pool.fetch("SELECT * FROM session_event WHERE session_id = $1 ORDER BY seq", session.session_id)
    return [(row["seq"], row["type"], orjson.loads(row["payload"])) for row in rows]


async def messages(pool: Pool, session: SeededSession) -> list[asyncpg.Record]:
    return await pool.fetch("SELECT * FROM chat_message WHERE session_id = $1 ORDER BY seq", session.session_id)


def states(log: list[tuple[int, str, dict[str, Any]]]) -> list[str]:
    return [payload.get("state") or kind for _, kind, payload in log]


async def test_a_question_is_searched_and_answered(
    pool: Pool, start_runner: StartRunner, retrieval: RetrievalDouble, model: ScriptedModel
) -> None:
    start_runner()
    session = await seed_session(pool)
    model.add(tool_calls=[{"name": "KnowledgeTool", "arguments": {"query": "return period"}}])
    model.add(text="Within 30 days [1], not 60 [7].")

    run = await finished(pool, await post(pool, session, "How long can I return goods?"))

    assert (run["reason"], run["state"], run["step"], run["error"]) == ("completed", "FINISHED", 2, None)
    stored = await messages(pool, session)
    assert [row["role"] for row in stored] == ["user", "assistant", "tool", "assistant"]
    assert [row["seq"] for row in stored] == [1, 2, 3, 4]
    assert "returned within 30 days" in stored[2]["content"]
    assert [c["n"] for c in stored[3]["citations"]] == [1]
    log = await events(pool, session)
    assert [seq for seq, _, _ in log] == list(range(1, len(log) + 1))
    assert states(log) == [
        "message.created", "run.queued", "PLANNING", "THINKING", "message.created", "EXECUTING",
        "message.created", "THINKING", "message.created", "FINISHED",
    ]  # fmt: skip
    assert log[-1][2]["usage"]["total_tokens"] > 0
    [question] = retrieval.questions
    assert (question.query, question.scope.by) == ("return period", "run")
    steps = await pool.fetch("SELECT n, kind, state, tool_name FROM run_step WHERE run_id = $1 ORDER BY n", run["id"])
    assert [tuple(row) for row in steps] == [
        (1, "think", "done", None), (2, "execute", "done", "KnowledgeTool"), (3, "think", "done", None),
    ]  # fmt: skip


async def test_tools_outside_the_list_and_wrong_arguments_are_told_to_the_model(
    pool: Pool, start_runner: StartRunner, retrieval: RetrievalDouble, model: ScriptedModel
) -> None:
    start_runner()
    session = await seed_session(pool)
    model.add(
        tool_calls=[
            {"name": "DropTables", "arguments": {}},
            {"name": "KnowledgeTool", "arguments": '{"query": '},
            {"name": "KnowledgeTool", "arguments": {"query": "x", "top_k": 99}},
            {"name": "CurrentTimeTool", "arguments": {"timezone": "Asia/Shanghai"}},
        ]
    )
    model.add(text="ok")
    run = await finished(pool, await post(pool, session, "go"))
    assert run["reason"] == "completed"
    results = [orjson.loads(row["content"]) for row in await messages(pool, session) if row["role"] == "tool"]
    codes = [result.get("error", {}).get("code") for result in results]
    assert codes == ["unknown_tool", "invalid_arguments", "invalid_arguments", None]
    assert results[3]["time"].endswith("+08:00")
    assert retrieval.questions == []


async def test_the_step_limit_ends_a_run_visibly(
    pool: Pool, start_runner: StartRunner, retrieval: RetrievalDouble, model: ScriptedModel
) -> None:
    start_runner()
    session = await seed_session(pool, max_steps=3)
    model.add(tool_calls=[{"name": "KnowledgeTool", "arguments": {"query": "again"}}], times=0)
    run = await finished(pool, await post(pool, session, "loop"))
    assert (run["reason"], run["state"], run["step"]) == ("step_limit", "FINISHED", 3)
    assert len(model.requests) == 3


async def test_a_model_that_refuses_the_key_ends_the_run_at_once(
    pool: Pool, start_runner: StartRunner, model: ScriptedModel
) -> None:
    start_runner()
    session = await seed_session(pool)
    model.add(status=401, body='{"error": {"message": "no"}}', times=0)
    run = await finished(pool, await post(pool, session, "hi"))
    assert (run["reason"], run["state"], run["error"]["code"]) == ("error", "ERROR", "llm_unauthorized")
    assert len(model.requests) == 1


async def test_messages_of_a_session_are_answered_one_after_the_other(
    pool: Pool, start_runner: StartRunner, model: ScriptedModel
) -> None:
    start_runner()
    start_runner()
    session = await seed_session(pool)
    for n in range(4):
        model.add(match=f"question {n}", text=f"answer {n}", delay_ms=20)
    runs = [await post(pool, session, f"question {n}") for n in range(4)]
    ended = [await finished(pool, run) for run in runs]
    for earlier, later in itertools.pairwise(ended):
        assert earlier["finished_at"] <= later["started_at"]
    answers = [row["content"] for row in await messages(pool, session) if row["role"] == "assistant"]
    assert answers == [f"answer {n}" for n in range(4)]
    last = model.requests[-1]["body"]["messages"]
    assert [m["content"] for m in last if m["role"] != "system"] == [
        "question 0", "answer 0", "question 1", "answer 1", "question 2", "answer 2", "question 3",
    ]  # fmt: skip


async def test_fifty_tool_calls_of_one_runner_overlap(
    pool: Pool, start_runner: StartRunner, retrieval: RetrievalDouble, model: ScriptedModel
) -> None:
    start_runner()
    retrieval.delay = 0.2
    sessions = [await seed_session(pool) for _ in range(50)]
    runs = [await post(pool, session, f"question {n}") for n, session in enumerate(sessions)]
    for run in runs:
        assert (await finished(pool, run))["reason"] == "completed"
    assert len(retrieval.questions) == 50
    assert retrieval.most_in_flight >= 8
    took = await pool.fetchval(
        "SELECT extract(epoch FROM max(finished_at) - min(started_at)) FROM run_step WHERE kind = 'execute'"
    )
    assert took < 50 / 8 * 2


@pytest.mark.parametrize(
    ("failpoint", "asked", "searched"),
    [("after_reply_before_tool", 2, 1), ("after_tool_before_commit", 2, 2)],
)
async def test_a_killed_runner_is_continued_at_the_last_committed_step(
    pool: Pool,
    start_runner: StartRunner,
    retrieval: RetrievalDouble,
    model: ScriptedModel,
    failpoint: str,
    asked: int,
    searched: int,
) -> None:
    first = start_runner(CHATMIND_FAILPOINT=f"{failpoint}=kill")
    session = await seed_session(pool)
    model.add(tool_calls=[{"name": "KnowledgeTool", "arguments": {"query": "q"}}])
    model.add(text="The answer [1].")
    run_id = await post(pool, session, "question")
    await eventually(lambda: _died(first))
    start_runner()
    run = await finished(pool, run_id)
    assert run["reason"] == "completed"
    assert (len(model.requests), len(retrieval.questions)) == (asked, searched)
    await assert_clean_log(pool, session, run_id)


async def test_a_runner_killed_in_mid_stream_is_continued(
    pool: Pool, start_runner: StartRunner, retrieval: RetrievalDouble, model: ScriptedModel
) -> None:
    first = start_runner()
    session = await seed_session(pool)
    model.add(text="This is cut off by the kill", gate="middle", after=1)
    model.add(text="The whole answer.")
    run_id = await post(pool, session, "question")
    await eventually(lambda: _stands_at_gate(model))
    first.kill()
    start_runner()
    run = await finished(pool, run_id)
    assert run["reason"] == "completed"
    assert len(model.requests) == 2
    assert (await messages(pool, session))[-1]["content"] == "The whole answer."
    await assert_clean_log(pool, session, run_id)


async def test_sigterm_hands_a_run_back_without_costing_an_attempt(
    pool: Pool, start_runner: StartRunner, model: ScriptedModel
) -> None:
    first = start_runner(CHATMIND_JOBS__DRAIN="0.2")
    session = await seed_session(pool)
    model.add(text="never said", gate="middle", after=1)
    model.add(text="The answer.")
    run_id = await post(pool, session, "question")
    await eventually(lambda: _stands_at_gate(model))
    await asyncio.to_thread(first.terminate)
    row = await pool.fetchrow("SELECT status, attempts FROM run WHERE id = $1", run_id)
    assert row is not None
    assert tuple(row) == ("queued", 0)
    start_runner()
    assert (await finished(pool, run_id, within=10))["reason"] == "completed"


async def assert_clean_log(pool: Pool, session: SeededSession, run_id: UUID) -> None:
    """Events are 1..n, the run ends once, and what events say is what is stored."""
    log = await events(pool, session)
    assert [seq for seq, _, _ in log] == list(range(1, len(log) + 1))
    assert sum(kind == "run.finished" for _, kind, _ in log) == 1
    assert log[-1][1] == "run.finished"
    created = [payload["message"] for _, kind, payload in log if kind == "message.created"]
    stored = await messages(pool, session)
    assert [(m["id"], m["content"]) for m in created] == [(str(row["id"]), row["content"]) for row in stored]
    steps = await pool.fetch("SELECT n FROM run_step WHERE run_id = $1 ORDER BY n", run_id)
    assert [row["n"] for row in steps] == list(range(1, len(stored)))


async def _died(process: ServiceProcess) -> bool:
    return process.process.poll() is not None


async def _stands_at_gate(model: ScriptedModel) -> bool:
    return model.gate("middle").waiting > 0


async def test_a_full_runner_lets_go_of_its_parked_wake_ups_when_it_stops(
    pool: Pool, start_runner: StartRunner, model: ScriptedModel
) -> None:
    first = start_runner(CHATMIND_JOBS__DRAIN="0.2", CHATMIND_JOBS__SLOTS="1")
    sessions = [await seed_session(pool) for _ in range(3)]
    model.add(text="never said", gate="middle", after=1)
    model.add(text="The answer.", times=0)
    runs = [await post(pool, session, "question") for session in sessions]
    await eventually(lambda: _stands_at_gate(model))
    began = time.monotonic()
    assert await asyncio.to_thread(first.terminate) == 0
    assert time.monotonic() - began < 8
    start_runner()
    for run_id in runs:
        assert (await finished(pool, run_id, within=12))["reason"] == "completed"


async def test_what_cannot_be_read_goes_to_the_dead_letters_and_holds_up_nothing(
    pool: Pool, start_runner: StartRunner, rabbitmq_url: str, model: ScriptedModel
) -> None:
    runner = start_runner()
    session = await seed_session(pool)
    async with await aio_pika.connect(rabbitmq_url) as connection:
        channel = await connection.channel()
        dead_letters = await channel.get_queue(DEAD_LETTERS)
        await dead_letters.purge()
        for body in (b"", b"\xff\xfe", b"{}", b'{"schema_version": 2, "run_id": "secret-7f3a"}'):
            await channel.default_exchange.publish(aio_pika.Message(body), routing_key=RUNS)
        run = await finished(pool, await post(pool, session, "question"))
        assert run["reason"] == "completed"

        async def all_there() -> bool:
            state = await channel.declare_queue(DEAD_LETTERS, passive=True)
            return state.declaration_result.message_count == 4

        await eventually(all_there)
    log = runner.log_file.read_text()
    assert log.count('"message.rejected"') == 4
    assert "secret-7f3a" not in log
    assert all(line.startswith("{") for line in log.splitlines())
