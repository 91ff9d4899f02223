"""Hints on real RabbitMQ: everybody hears them, and nobody waits for them."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from shared import hints
from shared.contracts.hints import HINT, EventFrame, MessageDelta, RunCancelled, StreamAdvanced
from shared.hints import HintListener, HintPublisher, stream_advanced
from shared.ids import new_id
from shared.service import background
from tests.support.stack import Stack
from tests.support.waiting import eventually


class Ear:
    """A listener and what it has heard."""

    def __init__(self, rabbitmq_url: str) -> None:
        self.heard: list[tuple[str, str, bytes]] = []
        self.gaps = 0
        self.listener = HintListener(rabbitmq_url, "test", self._on_hint, self._on_gap)

    def _on_hint(self, kind: str, routing_key: str, body: bytes) -> None:
        self.heard.append((kind, routing_key, body))
        if kind == "unreadable":
            raise ValueError(kind)

    def _on_gap(self) -> None:
        self.gaps += 1


def exchanging(publisher: HintPublisher, *ears: Ear) -> AbstractAsyncContextManager[None]:
    return background([publisher.run, *(ear.listener.run for ear in ears)])


async def connected(publisher: HintPublisher, *ears: Ear) -> None:
    async def all_ready() -> bool:
        return publisher._link.ready.is_set() and all(ear.listener.ready for ear in ears)

    await eventually(all_ready, every=0.01)


def has_heard(ear: Ear, count: int) -> Callable[[], "asyncio.Future[bool]"]:
    async def enough() -> bool:
        return len(ear.heard) >= count

    return lambda: asyncio.ensure_future(enough())


async def test_every_listener_hears_every_hint_in_order(rabbitmq_url: str) -> None:
    publisher, ears = HintPublisher(rabbitmq_url, "test"), [Ear(rabbitmq_url), Ear(rabbitmq_url)]
    session_id, run_id = new_id(), new_id()
    sent: list[StreamAdvanced | MessageDelta | RunCancelled] = [
        StreamAdvanced(
            stream_id=session_id, last_seq=1, events=(EventFrame(seq=1, type="run.queued", data='{"seq":1}'),)
        ),
        MessageDelta(stream_id=session_id, message_id=new_id(), offset=0, text="好"),
        RunCancelled(run_id=run_id),
    ]
    async with exchanging(publisher, *ears):
        await connected(publisher, *ears)
        for hint in sent:
            publisher.send(hint)
        for ear in ears:
            await eventually(has_heard(ear, 3))
    for ear in ears:
        assert [HINT.validate_json(body) for _, _, body in ear.heard] == sent
        assert [kind for kind, _, _ in ear.heard] == ["stream.advanced", "message.delta", "run.cancelled"]
        assert [key for _, key, _ in ear.heard] == [str(session_id), str(session_id), str(run_id)]
        assert ear.gaps == 1, "whoever connects may have missed something"


async def test_sending_never_waits_and_drops_what_is_too_much(rabbitmq_url: str) -> None:
    publisher = HintPublisher(rabbitmq_url, "test")  # not running: as if the broker were away
    for n in range(hints._MAX_WAITING + 100):
        publisher.send(StreamAdvanced(stream_id=new_id(), last_seq=n))
    assert publisher._waiting.qsize() == hints._MAX_WAITING


async def test_large_hints_are_dropped_by_their_size(rabbitmq_url: str) -> None:
    publisher = HintPublisher(rabbitmq_url, "test")
    text = "x" * 100_000
    for n in range(1000):
        publisher.send(MessageDelta(stream_id=new_id(), message_id=new_id(), offset=n, text=text))
    assert 300 < publisher._waiting.qsize() < 340  # 32 MiB of them


async def test_events_that_are_too_large_are_left_to_the_table() -> None:
    stream_id = new_id()
    small = EventFrame(seq=7, type="message.created", data="x" * 1000)
    large = EventFrame(seq=8, type="message.created", data="x" * 200_000)

    assert stream_advanced(stream_id, [small]).events == (small,)
    hint = stream_advanced(stream_id, [small, large])
    assert (hint.events, hint.last_seq) == ((), 8)
    assert len(hint.model_dump_json()) < 256 * 1024


async def test_a_lost_connection_is_a_gap_and_comes_back(stack: Stack, rabbitmq_url: str) -> None:
    publisher, ear = HintPublisher(rabbitmq_url, "test"), Ear(rabbitmq_url)
    async with exchanging(publisher, ear):
        await connected(publisher, ear)
        vhost = rabbitmq_url.rsplit("/", 1)[1]
        await asyncio.to_thread(stack.rabbitmq.ctl, "close_all_connections", "--vhost", vhost, "test")

        async def came_back() -> bool:
            return ear.gaps == 2

        await eventually(came_back)
        await connected(publisher, ear)
        publisher.send(StreamAdvanced(stream_id=new_id(), last_seq=1))
        await eventually(has_heard(ear, 1))
