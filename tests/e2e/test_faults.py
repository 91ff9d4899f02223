"""What a user sees when parts of the system die: nothing is lost, nothing happens twice, nothing is stuck."""

import asyncio
import time

import httpx
import pytest

from tests.e2e.system import System, ask, assert_clean, make_session, session_events, stored_messages
from tests.support.scripted_model import ScriptedModel
from tests.support.sse import SseEvent, open_stream
from tests.support.stack import ServiceProcess
from tests.support.waiting import eventually

RECOVERY_SECONDS = 45


async def _has_died(process: ServiceProcess) -> bool:
    return process.process.poll() is not None


async def _waits_at(model: ScriptedModel, gate: str) -> bool:
    return model.gate(gate).waiting > 0


async def test_a_runner_killed_in_mid_stream(system: System, knowledge_base_id: str, model: ScriptedModel) -> None:
    here, there = system.clients
    session_id = await make_session(here, knowledge_base_id, "scripted")
    model.add(text="half of an answer that nobody will see", gate="stream", after=1)
    model.add(text="The whole answer.")
    system.runners[1].pause()
    await ask(here, session_id, "question")
    await eventually(lambda: _waits_at(model, "stream"))
    system.runners[1].resume()
    system.runners[0].kill()
    killed_at = time.monotonic()
    events = await session_events(there, session_id)
    assert time.monotonic() - killed_at < RECOVERY_SECONDS
    stored = await stored_messages(there, session_id)
    assert_clean(events, stored, reasons=["completed"])
    assert stored[-1]["content"] == "The whole answer."
    assert len(model.requests) == 2


@pytest.mark.parametrize("failpoint", ["after_reply_before_tool", "after_tool_before_commit"])
async def test_a_runner_killed_around_a_tool_call(
    system: System, knowledge_base_id: str, model: ScriptedModel, failpoint: str
) -> None:
    here, there = system.clients
    for runner in system.runners:
        runner.kill()
    doomed = system.add("services.agent_runner.main", CHATMIND_FAILPOINT=f"{failpoint}=kill")
    doomed.wait_ready()
    session_id = await make_session(here, knowledge_base_id, "scripted")
    model.add(tool_calls=[{"name": "KnowledgeTool", "arguments": {"query": "descaling"}}])
    model.add(text="Every 60 days [1].")
    await ask(here, session_id, "question")
    await eventually(lambda: _has_died(doomed))
    killed_at = time.monotonic()
    system.heal()
    events = await session_events(there, session_id)
    assert time.monotonic() - killed_at < RECOVERY_SECONDS
    stored = await stored_messages(there, session_id)
    assert_clean(events, stored, reasons=["completed"])
    assert stored[-1]["content"] == "Every 60 days [1]."
    # The committed reply was not asked for again: one request for it, one for the answer.
    assert len(model.requests) == 2


async def test_the_broker_is_away_for_half_a_minute(
    system: System, knowledge_base_id: str, model: ScriptedModel
) -> None:
    sessions = [await make_session(system.clients[0], knowledge_base_id, "scripted") for _ in range(6)]
    stopped_at = time.monotonic()
    await asyncio.to_thread(system.stack.rabbitmq.stop)
    try:
        for position, session_id in enumerate(sessions * 3):
            began = time.monotonic()
            await ask(system.clients[position % 2], session_id, f"message {position}")
            assert time.monotonic() - began < 1
        await eventually(lambda: _seconds_have_passed(stopped_at, 30), within=40)
    finally:
        await asyncio.to_thread(system.stack.rabbitmq.start)
    for session_id in sessions:
        events = await asyncio.wait_for(session_events(system.clients[1], session_id, runs=3), 60)
        assert_clean(events, await stored_messages(system.clients[0], session_id), reasons=["completed"] * 3)


async def _seconds_have_passed(since: float, seconds: float) -> bool:
    return time.monotonic() - since >= seconds


async def test_all_queues_are_deleted_with_work_pending(
    system: System, knowledge_base_id: str, model: ScriptedModel
) -> None:
    client = system.clients[0]
    sessions = [await make_session(client, knowledge_base_id, "scripted") for _ in range(8)]
    for runner in system.runners:
        runner.pause()
    vhost = system.environment["RABBITMQ_URL"].rsplit("/", 1)[1]
    for session_id in sessions:
        await ask(client, session_id, "question")
    base = (await client.post("/api/knowledge-bases", json={"name": "late"})).json()
    files = [("files", (f"{n}.md", f"# Note {n}\n\nText {n}.".encode(), "text/markdown")) for n in range(5)]
    for name in await asyncio.to_thread(system.stack.rabbitmq.list_queues, vhost):
        if not name.startswith("amq."):
            await asyncio.to_thread(system.stack.rabbitmq.delete_queue, name, vhost)
    uploaded = await client.post(f"/api/knowledge-bases/{base['id']}/documents", files=files)
    assert uploaded.status_code == 202
    for runner in system.runners:
        runner.resume()
    for session_id in sessions:
        events = await asyncio.wait_for(session_events(client, session_id), 60)
        assert_clean(events, await stored_messages(client, session_id), reasons=["completed"])

    async def all_ready() -> bool:
        items = (await client.get(f"/api/knowledge-bases/{base['id']}/documents")).json()["items"]
        return [item["state"] for item in items] == ["ready"] * 5

    await eventually(all_ready, within=60)


async def test_a_gateway_dies_with_twenty_listeners(
    system: System, knowledge_base_id: str, model: ScriptedModel
) -> None:
    doomed, other = system.clients
    sessions = [await make_session(other, knowledge_base_id, "scripted") for _ in range(20)]
    for session_id in sessions:
        model.add(match=session_id, text="A slow answer. " * 5, delay_ms=100, chunk_chars=8)
        model.add(match=session_id, text="Another answer.")
    listeners = [asyncio.create_task(_listen(doomed, other, session_id)) for session_id in sessions]
    for session_id in sessions:
        await ask(other, session_id, f"question in {session_id}")
    await eventually(lambda: _requests_at(model, 10))
    system.gateways[0].kill()
    for session_id in sessions:
        await ask(other, session_id, f"and again in {session_id}")
    heard = await asyncio.wait_for(asyncio.gather(*listeners), 90)
    for session_id, events in zip(sessions, heard, strict=True):
        assert_clean(events, await stored_messages(other, session_id), reasons=["completed", "completed"])


async def _requests_at(model: ScriptedModel, count: int) -> bool:
    return len(model.requests) >= count


async def _listen(first: httpx.AsyncClient, second: httpx.AsyncClient, session_id: str) -> list[SseEvent]:
    """Reads two runs' events; goes over to the second gateway where it left off when the first one dies."""
    events: list[SseEvent] = []
    for client in (first, second):
        try:
            last = events[-1].id if events else 0
            async with open_stream(client, f"/api/sessions/{session_id}/events", last_event_id=last) as stream:
                async for event in stream:
                    if event.id is None:
                        continue
                    events.append(event)
                    if sum(event.type == "run.finished" for event in events) == 2:
                        return events
        except httpx.HTTPError:
            continue
    raise AssertionError("both gateways are gone")
