"""The bytes of events, and the bare ASGI response."""

import asyncio

import pytest

from services.gateway.sse import OPENING, EventStream, Message, encode_event, encode_transient
from shared.contracts.hints import EventFrame


def test_a_stored_event_has_its_id() -> None:
    frame = EventFrame(seq=17, type="run.state", data='{"a":"é"}')
    assert encode_event(frame) == 'id: 17\nevent: run.state\ndata: {"a":"é"}\n\n'.encode()


@pytest.mark.parametrize("data", ['{\n"a": 1}', '{\r\n"a": 1}', '{\r"a": 1}'])
def test_data_is_always_one_line(data: str) -> None:
    encoded = encode_event(EventFrame(seq=1, type="x", data=data))
    assert encoded.count(b"\n") == 4
    assert b"\r" not in encoded


def test_a_transient_event_moves_no_place() -> None:
    assert encode_transient("message.delta", "{}") == b"event: message.delta\ndata: {}\n\n"


class Chunks:
    """A source of given chunks; waits for ever after them unless it is told to end."""

    def __init__(self, *chunks: bytes, ends: bool) -> None:
        self._chunks = list(chunks)
        self._ends = ends
        self._closed = asyncio.Event()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    async def next(self) -> bytes | None:
        if self._chunks:
            return self._chunks.pop(0)
        if not self._ends:
            await self._closed.wait()
        return None

    def close(self) -> None:
        self._closed.set()


async def never() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


async def test_sends_everything_and_closes() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    source = Chunks(b"one", b"two", ends=True)
    await EventStream(source, send_timeout=1)({}, never, send)
    assert (sent[0]["type"], sent[0]["status"]) == ("http.response.start", 200)
    assert [message["body"] for message in sent[1:]] == [OPENING, b"one", b"two", b""]
    assert [message["more_body"] for message in sent[1:]] == [True, True, True, False]
    assert source.closed


async def test_ends_when_the_client_is_gone() -> None:
    gone = asyncio.Event()

    async def receive() -> Message:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(_message: Message) -> None:
        gone.set()

    source = Chunks(ends=False)
    async with asyncio.timeout(2):
        await EventStream(source, send_timeout=1)({}, receive, send)
    assert source.closed


async def test_gives_up_on_a_client_that_takes_nothing() -> None:
    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    source = Chunks(b"one", ends=False)
    async with asyncio.timeout(2):
        await EventStream(source, send_timeout=0.01)({}, never, send)
    assert source.closed
