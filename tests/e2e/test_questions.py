"""The main job: a question answered from a document, through four services, in English and Chinese."""

import asyncio

import pytest

from tests.e2e.system import System, ask, assert_clean, make_session, session_events, stored_messages
from tests.support.scripted_model import ScriptedModel
from tests.support.sse import open_stream

QUESTIONS = [
    ("How often should I descale the kettle?", "60 days"),
    ("订单多久未支付会被自动取消？", "45 分钟"),
]


@pytest.mark.parametrize(("question", "fact"), QUESTIONS)
async def test_the_offline_model_answers_from_the_document(
    system: System, knowledge_base_id: str, question: str, fact: str
) -> None:
    here, there = system.clients
    session_id = await make_session(here, knowledge_base_id, "offline")
    posted = await ask(here, session_id, question)
    assert posted["last_seq"] == 0
    events = await session_events(there, session_id)
    stored = await stored_messages(there, session_id)
    assert_clean(events, stored, reasons=["completed"])
    assert [m["role"] for m in stored] == ["user", "assistant", "tool", "assistant"]
    answer = stored[-1]
    assert fact in answer["content"]
    assert answer["citations"]
    cited = answer["citations"][0]
    assert fact in stored[2]["content"]
    chunks = (await here.get(f"/api/documents/{cited['document_id']}/chunks")).json()["items"]
    assert any(fact in chunk["content"] and chunk["title"] == cited["title"] for chunk in chunks)
    run = (await there.get(f"/api/runs/{posted['run']['id']}")).json()
    assert (run["state"], run["reason"], run["step"]) == ("FINISHED", "completed", 2)


@pytest.mark.parametrize(("question", "fact"), QUESTIONS)
async def test_a_scripted_model_answers_from_the_document(
    system: System, knowledge_base_id: str, model: ScriptedModel, question: str, fact: str
) -> None:
    here, there = system.clients
    session_id = await make_session(here, knowledge_base_id, "scripted")
    model.add(match=question, tool_calls=[{"name": "KnowledgeTool", "arguments": {"query": question}}])
    model.add(match=question, text=f"It is {fact} [1].")
    await ask(there, session_id, question)
    events = await session_events(here, session_id)
    stored = await stored_messages(here, session_id)
    assert_clean(events, stored, reasons=["completed"])
    assert fact in stored[2]["content"]
    assert (stored[3]["content"], [c["n"] for c in stored[3]["citations"]]) == (f"It is {fact} [1].", [1])
    [first, second] = model.requests
    assert [tool["function"]["name"] for tool in first["body"]["tools"]] == ["KnowledgeTool", "CurrentTimeTool"]
    assert second["body"]["messages"][-1]["role"] == "tool"


async def test_a_greeting_is_answered_without_a_search(system: System, knowledge_base_id: str) -> None:
    session_id = await make_session(system.clients[0], knowledge_base_id, "offline")
    await ask(system.clients[0], session_id, "你好")
    await session_events(system.clients[1], session_id)
    assert [m["role"] for m in await stored_messages(system.clients[0], session_id)] == ["user", "assistant"]


async def test_deltas_come_to_those_who_ask_and_make_the_stored_text(
    system: System, knowledge_base_id: str, model: ScriptedModel
) -> None:
    here, there = system.clients
    session_id = await make_session(here, knowledge_base_id, "scripted")
    model.add(text="Descale it every sixty days, please. " * 8, delay_ms=15, chunk_chars=12)
    path = f"/api/sessions/{session_id}/events"
    pieces: dict[str, str] = {}
    async with open_stream(there, path, last_event_id=0, deltas=True) as stream, asyncio.timeout(30):
        await ask(here, session_id, "hello")
        async for event in stream:
            if event.type == "message.delta":
                delta = event.data
                assert event.id is None
                assert len(pieces.get(delta["message_id"], "")) == delta["offset"]
                pieces[delta["message_id"]] = pieces.get(delta["message_id"], "") + delta["text"]
            if event.type == "run.finished":
                break
    answer = (await stored_messages(here, session_id))[-1]
    assert pieces == {answer["id"]: answer["content"]}


async def test_two_messages_through_two_gateways_at_once_are_answered_in_order(
    system: System, knowledge_base_id: str, model: ScriptedModel
) -> None:
    session_id = await make_session(system.clients[0], knowledge_base_id, "scripted")
    model.add(match="first or second", text="one answer", delay_ms=50, times=2)
    posted = await asyncio.gather(*(ask(client, session_id, "first or second") for client in system.clients))
    events = await session_events(system.clients[0], session_id, runs=2)
    stored = await stored_messages(system.clients[1], session_id)
    assert_clean(events, stored, reasons=["completed", "completed"])
    order = [p["run"]["id"] for p in sorted(posted, key=lambda p: p["message"]["seq"])]
    assert [e.data["run_id"] for e in events if e.type == "run.finished"] == order
    begun = [e.data["run_id"] for e in events if e.type == "run.state" and e.data["state"] == "PLANNING"]
    assert begun == order
    ends = [n for n, e in enumerate(events) if e.type == "run.finished"]
    assert ends[0] < next(n for n, e in enumerate(events) if e.type == "run.state" and e.data["run_id"] == order[1])
