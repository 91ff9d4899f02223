"""Searches and citations of a real runner: what is searched for and what that costs, and what an answer's marks become."""

from typing import Any

import pytest

from shared.db.pool import Pool
from tests.integration.agent_runner.conftest import StartRunner
from tests.integration.agent_runner.test_runs import finished, messages
from tests.integration.agent_runner.watched import conversation, gate
from tests.support.retrieval_double import RetrievalDouble
from tests.support.scripted_model import ScriptedModel
from tests.support.seed import SeededSession, post, seed_session
from tests.support.stack import ServiceProcess
from tests.support.waiting import eventually

SEARCH = {"name": "KnowledgeTool", "arguments": {"query": "and opened ones?"}}
USAGE_OF_EACH_REPLY = {"prompt_tokens": 7}


async def seed_rewriting(pool: Pool, kind: str = "rewrite") -> SeededSession:
    session = await seed_session(pool)
    await pool.execute("UPDATE agent SET knowledge = $2 WHERE id = $1", session.agent_id, {"query_rewriting": kind})
    return session


async def first_turn(pool: Pool, session: SeededSession, model: ScriptedModel) -> None:
    model.add(text="Within 30 days.")
    await finished(pool, await post(pool, session, "How long may goods be returned?"))


async def test_a_query_is_rewritten_from_the_conversation(
    pool: Pool, start_runner: StartRunner, retrieval: RetrievalDouble, model: ScriptedModel
) -> None:
    start_runner()
    session = await seed_rewriting(pool)
    await first_turn(pool, session, model)
    model.add(tool_calls=[SEARCH])
    model.add(match="Query: and opened ones?", text="How long may opened goods be returned?")
    model.add(text="Opened ones too [1].")

    run = await finished(pool, await post(pool, session, "and opened ones?"))

    assert run["reason"] == "completed"
    [question] = retrieval.questions
    assert (question.query, question.queries) == ("How long may opened goods be returned?", ("and opened ones?",))
    assert question.scope.by == "run"
    asked = model.requests[2]["body"]
    assert "Assistant: Within 30 days." in asked["messages"][1]["content"]
    assert (asked["max_tokens"], "tools" in asked) == (256, False)
    assert run["usage"]["prompt_tokens"] == 3 * USAGE_OF_EACH_REPLY["prompt_tokens"]
    steps = await pool.fetch("SELECT usage FROM run_step WHERE run_id = $1 ORDER BY n", run["id"])
    assert [step["usage"]["prompt_tokens"] for step in steps] == [7, 7, 7]
    result = (await messages(pool, session))[-2]
    assert result["metadata"]["search"] == {"query": question.query, "queries": list(question.queries)}


async def test_a_model_that_does_not_rewrite_costs_the_user_nothing(
    pool: Pool, start_runner: StartRunner, retrieval: RetrievalDouble, model: ScriptedModel
) -> None:
    runner = start_runner(CHATMIND_REWRITING__TIMEOUT="0.2")
    session = await seed_rewriting(pool, "multi")
    model.add(tool_calls=[SEARCH])
    model.add(match="Query:", fault="hang")
    model.add(text="Never the less [1].")
    run = await finished(pool, await post(pool, session, "question"))
    assert run["reason"] == "completed"
    assert [(q.query, q.queries) for q in retrieval.questions] == [("and opened ones?", ())]
    assert '"query.not_rewritten"' in runner.log_file.read_text()


async def test_what_was_rewritten_and_committed_is_not_asked_again(
    pool: Pool, start_runner: StartRunner, retrieval: RetrievalDouble, model: ScriptedModel
) -> None:
    first = start_runner()
    session = await seed_rewriting(pool)
    await first_turn(pool, session, model)
    model.add(tool_calls=[SEARCH])
    model.add(match="Query:", text="How long may opened goods be returned?")
    model.add(text="never said", gate="answer", after=0)
    model.add(text="Opened ones too [1].")
    run_id = await post(pool, session, "and opened ones?")
    await eventually(gate(model, "answer"))
    first.kill()
    start_runner()
    run = await finished(pool, run_id)
    assert run["reason"] == "completed"
    rewritings = [r for r in model.requests if "Query: " in r["body"]["messages"][-1]["content"]]
    assert (len(rewritings), len(retrieval.questions)) == (1, 1)
    assert run["usage"]["prompt_tokens"] == 3 * USAGE_OF_EACH_REPLY["prompt_tokens"]


async def test_a_cancel_closes_the_call_that_rewrites(
    pool: Pool,
    gateway: ServiceProcess,
    start_runner: StartRunner,
    retrieval: RetrievalDouble,
    model: ScriptedModel,
) -> None:
    start_runner(CHATMIND_REWRITING__TIMEOUT="30")
    model.add(tool_calls=[SEARCH])
    model.add(match="Query:", text="never read", gate="rewriting", after=0)
    async with conversation(pool, gateway, ("KnowledgeTool",)) as talk:
        how = {"query_rewriting": "multi"}
        answer = await talk.client.patch(f"/api/agents/{talk.session.agent_id}", json={"knowledge": how})
        answer.raise_for_status()
        run_id = await talk.post("hello")
        await eventually(gate(model, "rewriting"))
        assert (await talk.cancel(run_id))["reason"] == "cancelled"

        async def is_closed() -> bool:
            return bool(model.requests[1]["disconnected"])

        await eventually(is_closed, within=2)
        await talk.sees("run.finished")
    assert retrieval.questions == []


@pytest.mark.parametrize("chunk_chars", [1, 3, 16])
async def test_marks_that_point_to_nothing_are_neither_streamed_nor_stored(
    pool: Pool,
    gateway: ServiceProcess,
    start_runner: StartRunner,
    retrieval: RetrievalDouble,
    model: ScriptedModel,
    chunk_chars: int,
) -> None:
    runner = start_runner(CHATMIND_DELTA_INTERVAL="0")
    model.add(tool_calls=[SEARCH])
    text = "Within 30 days [1], not 60 [7]；见【1】【8】。`a[7]` [1, 9] and array[7]."
    model.add(text=text, chunk_chars=chunk_chars, delay_ms=1)
    async with conversation(pool, gateway, ("KnowledgeTool",)) as talk:
        await talk.post("hello")
        await talk.sees("run.finished")
        await talk.assert_shown_is_stored()
        answer = (await talk.stored())[-1]
    assert answer["content"] == "Within 30 days [1], not 60；见【1】。`a[7]` [1] and array[7]."
    assert answer["metadata"]["dropped_citations"] == [7, 8, 9]
    assert [cited["n"] for cited in answer["citations"]] == [1]
    assert '"citation.dropped"' in runner.log_file.read_text()


async def test_a_cancel_in_the_middle_of_a_mark(
    pool: Pool,
    gateway: ServiceProcess,
    start_runner: StartRunner,
    retrieval: RetrievalDouble,
    model: ScriptedModel,
) -> None:
    start_runner(CHATMIND_DELTA_INTERVAL="0")
    model.add(tool_calls=[SEARCH])
    model.add(text="Not 60 [7]. Within 30 days [1", chunk_chars=1, gate="middle", after=29)
    async with conversation(pool, gateway, ("KnowledgeTool",)) as talk:
        run_id = await talk.post("hello")
        await eventually(gate(model, "middle"))

        async def all_is_shown() -> bool:
            return "Not 60. Within 30 days" in talk.watcher.shown.values()

        await eventually(all_is_shown)
        await talk.cancel(run_id)
        await talk.sees("run.finished")
        await talk.assert_shown_is_stored()
        answer: dict[str, Any] = (await talk.stored())[-1]
    assert (answer["content"], answer["metadata"]) == ("Not 60. Within 30 days", {"interrupted": True})
