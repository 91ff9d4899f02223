"""Files on their way out: how they are named, how many there may be, and who stops taking one."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import ClientDisconnect

from services.gateway.downloads import Download, attachment
from services.gateway.slots import Slots
from services.gateway.store.files import FileChanged, StoredFile

TENANT = UUID(int=1)
FILE = StoredFile(TENANT, UUID(int=2), "a.md", "text/markdown", 2, b"")
SCOPE: dict[str, Any] = {"type": "http", "asgi": {"spec_version": "2.3"}}


@pytest.mark.parametrize(
    ("filename", "header"),
    [
        ("a b.md", "attachment; filename=\"a b.md\"; filename*=UTF-8''a%20b.md"),
        ("订.md", "attachment; filename=\"_.md\"; filename*=UTF-8''%E8%AE%A2.md"),
        ('a";x=\\%41.md', "attachment; filename=\"a_;x=__41.md\"; filename*=UTF-8''a%22%3Bx%3D%5C%2541.md"),
        ("a'(1)*.md", "attachment; filename=\"a'(1)*.md\"; filename*=UTF-8''a%27%281%29%2A.md"),
    ],
)
def test_names(filename: str, header: str) -> None:
    assert attachment(filename) == header


@given(st.text(st.characters(codec="utf-8"), max_size=50))
def test_any_name_is_one_header_that_gives_the_name_back(filename: str) -> None:
    header = attachment(filename)
    assert header.isascii()
    assert header.isprintable()
    quoted, _, extended = header.removeprefix('attachment; filename="').partition("\"; filename*=UTF-8''")
    assert not set(quoted) & set('"\\')
    assert unquote(extended) == filename


async def parts() -> AsyncIterator[bytes]:
    yield b"a"
    yield b"b"


async def changing() -> AsyncIterator[bytes]:
    yield b"a"
    raise FileChanged


async def stays() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError


class Client:
    """Takes messages, the bodies of parts only when it `reads`."""

    def __init__(self, *, reads: bool = True) -> None:
        self.messages: list[Any] = []
        self.reads = reads
        self.stuck = asyncio.Event()

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.body" and not self.reads:
            self.stuck.set()
            await asyncio.Event().wait()
        self.messages.append(message)

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])


def slots() -> Slots:
    return Slots(1, 2, "too_many_downloads", "downloads")


async def test_a_file_is_sent_in_its_parts() -> None:
    client = Client()
    await Download(FILE, parts(), slots().one_of(TENANT), 1)(SCOPE, stays, client.send)
    assert [message.get("body") for message in client.messages] == [None, b"a", b"b", b""]


async def test_a_tenant_has_so_many_at_once_and_gets_its_place_back() -> None:
    held = slots()
    slow = Client(reads=False)
    first = asyncio.ensure_future(Download(FILE, parts(), held.one_of(TENANT), 60)(SCOPE, stays, slow.send))
    async with asyncio.timeout(5):
        await slow.stuck.wait()
    expected = [(TENANT, 429), (UUID(int=3), 200)]
    for tenant, status in expected:
        client = Client()
        await Download(FILE, parts(), held.one_of(tenant), 1)(SCOPE, stays, client.send)
        assert client.status == status
    first.cancel()
    await asyncio.wait([first])
    client = Client()
    await Download(FILE, parts(), held.one_of(TENANT), 1)(SCOPE, stays, client.send)
    assert client.status == 200


async def test_a_client_that_does_not_read_is_left() -> None:
    held = slots()
    with pytest.raises(ClientDisconnect):
        await Download(FILE, parts(), held.one_of(TENANT), 0.01)(SCOPE, stays, Client(reads=False).send)
    with held.one_of(TENANT):
        pass


async def test_a_file_that_changes_ends_the_connection_before_its_end() -> None:
    client = Client()
    with pytest.raises(ClientDisconnect):
        await Download(FILE, changing(), slots().one_of(TENANT), 1)(SCOPE, stays, client.send)
    assert [message.get("body") for message in client.messages] == [None, b"a"]
