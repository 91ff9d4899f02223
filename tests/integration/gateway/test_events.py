"""Event streams over sockets, from two replicas: resuming, and the same bytes live and replayed."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from services.gateway.store.api_keys import revoke_key
from tests.integration.gateway.served import ServedGateways, issue_key, run_admin
from tests.support.api import (
    create_agent,
    create_knowledge_base,
    create_session,
    created,
    open_events,
    post_message,
    problem_of,
    seqs,
    upload,
)
from tests.support.stack import Stack


@pytest.fixture(scope="module")
def replicas(stack: Stack) -> Iterator[ServedGateways]:
    gateways = ServedGateways(
        stack, 2, STREAMS__KEEP_ALIVE="0.3", STREAMS__KEY_CHECK_EVERY="0.3", KEY_CACHE_SECONDS="0"
    )
    yield gateways
    gateways.stop()


@pytest.fixture
async def here(replicas: ServedGateways) -> AsyncIterator[httpx.AsyncClient]:
    async with replicas.client(0) as client:
        yield client


@pytest.fixture
async def there(replicas: ServedGateways) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the other replica."""
    async with replicas.client(1) as client:
        yield client


async def test_live_and_replay_send_the_same_bytes_from_both_replicas(
    here: httpx.AsyncClient, there: httpx.AsyncClient
) -> None:
    session = await create_session(here)
    path = f"/api/sessions/{session['id']}/events"
    async with open_events(here, path) as live_here, open_events(there, path) as live_there:
        for n in range(5):
            answer = await post_message(there if n % 2 else here, session["id"], f"消息 {n} \u2028 <&>")
            await created(here.post(f"/api/runs/{answer['run']['id']}/cancel"))
        seen = [await stream.take(15) for stream in (live_here, live_there)]
    async with open_events(there, path, after=0) as replay:
        seen.append(await replay.take(15))
    assert seqs(seen[0]) == list(range(1, 16))
    assert seen[0] == seen[1] == seen[2]
    for event in seen[0]:
        assert event.fields["seq"] == event.id
        assert event.fields["type"] == event.type
        assert event.fields["session_id"] == session["id"]
        assert "created_at" in event.fields


async def test_a_client_that_comes_back_anywhere_misses_nothing(
    here: httpx.AsyncClient, there: httpx.AsyncClient
) -> None:
    session = await create_session(here)
    path = f"/api/sessions/{session['id']}/events"
    got: list[int] = []

    async def post_all() -> None:
        for n in range(20):
            await post_message(here, session["id"], f"{n}")

    posting = asyncio.ensure_future(post_all())
    last = 0
    while last < 40:
        client = there if last % 2 else here
        async with open_events(client, path, headers={"Last-Event-ID": str(last)}) as events:
            got += seqs(await events.take(3 if last < 36 else 1))
            last = got[-1]
    await posting
    assert got == list(range(1, 41))


async def test_posting_first_and_listening_from_last_seq_misses_nothing(here: httpx.AsyncClient) -> None:
    session = await create_session(here)
    for _ in range(2):
        answer = await post_message(here, session["id"])
    async with open_events(here, f"/api/sessions/{session['id']}/events", after=answer["last_seq"]) as events:
        first = (await events.take(1))[0]
    assert first.fields["message"] == answer["message"]


async def test_without_a_place_only_the_next_events_come(here: httpx.AsyncClient) -> None:
    session = await create_session(here)
    await post_message(here, session["id"])
    async with open_events(here, f"/api/sessions/{session['id']}/events") as events:
        await post_message(here, session["id"])
        assert seqs(await events.take(2)) == [3, 4]


async def test_headers_and_comments(here: httpx.AsyncClient) -> None:
    session = await create_session(here)
    async with open_events(here, f"/api/sessions/{session['id']}/events") as events:
        headers = events.response.headers
        assert headers["content-type"] == "text/event-stream; charset=utf-8"
        assert headers["cache-control"] == "no-store"
        assert headers["x-accel-buffering"] == "no"
        assert "content-encoding" not in headers
        with pytest.raises(TimeoutError):
            await events.next(seconds=1.5)
        assert events.comments >= 1


@pytest.mark.parametrize("place", ["-1", "1", "x", "1.0", "", "0x1", "٣", "99999999999999999999999999"])
async def test_places_that_are_none_are_refused(here: httpx.AsyncClient, place: str) -> None:
    session = await create_session(here)
    base = await create_knowledge_base(here)
    for path in (f"/api/sessions/{session['id']}/events", f"/api/knowledge-bases/{base['id']}/events"):
        problem_of(await here.get(path, params={"after": place}), 400, "invalid_event_id")
        answer = await here.get(path, headers={b"Last-Event-ID": place.encode()})
        problem_of(answer, 400, "invalid_event_id")


async def test_last_event_id_goes_before_after(here: httpx.AsyncClient) -> None:
    session = await create_session(here)
    await post_message(here, session["id"])
    path = f"/api/sessions/{session['id']}/events"
    async with open_events(here, path, headers={"Last-Event-ID": "1"}, after=0) as events:
        assert seqs(await events.take(1)) == [2]


async def test_a_message_too_large_for_a_hint_arrives_whole(here: httpx.AsyncClient, there: httpx.AsyncClient) -> None:
    session = await create_session(here)
    content = "长" * 300_000
    async with open_events(there, f"/api/sessions/{session['id']}/events") as events:
        await post_message(here, session["id"], content)
        event = (await events.take(1))[0]
    assert event.fields["message"]["content"] == content


async def test_a_deleted_session_ends_its_streams(here: httpx.AsyncClient, there: httpx.AsyncClient) -> None:
    session = await create_session(here)
    async with open_events(there, f"/api/sessions/{session['id']}/events") as events:
        await here.delete(f"/api/sessions/{session['id']}")
        assert await events.next() is None
    problem_of(await there.get(f"/api/sessions/{session['id']}/events"), 404, "not_found")


async def test_a_revoked_key_ends_its_streams(replicas: ServedGateways, here: httpx.AsyncClient) -> None:
    session = await create_session(here)
    key = issue_key(replicas.environment)
    path = f"/api/sessions/{session['id']}/events"
    async with replicas.client(1, key) as client, open_events(client, path) as events, open_events(here, path) as own:
        await asyncio.to_thread(run_admin, replicas.environment, revoke_key, key)
        assert await events.next() is None
        problem_of(await client.get("/api/agents"), 401, "unauthorized")
        await post_message(here, session["id"])
        assert seqs(await own.take(2)) == [1, 2]


async def test_document_states_are_followed_like_sessions(here: httpx.AsyncClient, there: httpx.AsyncClient) -> None:
    base = await create_knowledge_base(here)
    path = f"/api/knowledge-bases/{base['id']}/events"
    async with open_events(there, path) as live:
        document = await upload(here, base["id"])
        await here.delete(f"/api/documents/{document['id']}")
        seen = await live.take(2)
    assert [event.type for event in seen] == ["document.state", "document.deleted"]
    assert seen[0].fields["document"] == document
    assert seen[0].fields["knowledge_base_id"] == base["id"]
    async with open_events(here, path, after=0) as replay:
        assert await replay.take(2) == seen


async def test_one_event_reaches_many_clients_quickly(here: httpx.AsyncClient, replicas: ServedGateways) -> None:
    session = await create_session(here)
    path = f"/api/sessions/{session['id']}/events"

    async def follow(client: httpx.AsyncClient, ready: asyncio.Event) -> list[int]:
        async with open_events(client, path, after=0) as events:
            await events.take(2)
            ready.set()
            return seqs(await events.take(2))

    await post_message(here, session["id"])
    async with replicas.client(0) as one, replicas.client(1) as two:
        for client in (one, two):
            client.timeout = httpx.Timeout(30)
        ready = [asyncio.Event() for _ in range(60)]
        followers = [asyncio.ensure_future(follow((one, two)[n % 2], event)) for n, event in enumerate(ready)]
        for event in ready:
            await event.wait()
        started = time.monotonic()
        await post_message(here, session["id"])
        assert await asyncio.gather(*followers) == [[3, 4]] * 60
        assert time.monotonic() - started < 5


async def test_clients_of_a_stopping_gateway_are_sent_to_another(stack: Stack) -> None:
    gateways = ServedGateways(stack, 2)
    async with gateways.client(0) as first, gateways.client(1) as second:
        session = await create_session(second, (await create_agent(second))["id"])
        path = f"/api/sessions/{session['id']}/events"
        async with open_events(first, path, after=0) as events:
            await post_message(second, session["id"])
            assert seqs(await events.take(2)) == [1, 2]
            ending = asyncio.ensure_future(asyncio.to_thread(gateways.processes[0].terminate))
            farewell = await events.next()
            assert farewell is not None
            assert (farewell.type, farewell.id) == ("reconnect", None)
            assert await events.next() is None
            assert await ending == 0
        await post_message(second, session["id"])
        async with open_events(second, path, headers={"Last-Event-ID": "2"}) as events:
            assert seqs(await events.take(2)) == [3, 4]
    assert "service.stopped" in gateways.processes[0].log_tail()
    gateways.stop()


async def test_a_stranger_who_asks_first_stands_in_nobodys_way(
    replicas: ServedGateways, here: httpx.AsyncClient
) -> None:
    session = await create_session(here)
    path = f"/api/sessions/{session['id']}/events"
    key = await asyncio.to_thread(issue_key, replicas.environment, "stranger")
    async with replicas.client(0, key) as stranger:
        problem_of(await stranger.get(path), 404, "not_found")
        async with open_events(here, path, after=0) as mine:
            problem_of(await stranger.get(path), 404, "not_found")
            await post_message(here, session["id"])
            assert seqs(await mine.take(2)) == [1, 2]
