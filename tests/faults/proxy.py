"""A TCP proxy that stands between a service and one of its servers, and does what networks do.

async with Proxy(5432) as proxy:
    proxy.port                         # where the service connects
    proxy.delay = 0.05                 # seconds, each way, from now on
    proxy.drop()                       # connections stay open, nothing comes through any more
    proxy.reset()                      # every connection gets a RST; new ones are served
    await proxy.refuse()               # nobody listens
    await proxy.heal()                 # all of that is over; connections that were dropped are reset
    proxy.swallow_reply_to("COMMIT")   # PostgreSQL only: the next statement with that text is carried out, its client never hears of it
"""

import asyncio
import socket
import struct
from typing import Self

from tests.faults.clock import lasts
from tests.faults.postgres_wire import ReplyWatch
from tests.support.stack import free_port

_CHUNK = 65_536
_RST_ON_CLOSE = struct.pack("ii", 1, 0)


class _Pair:
    """One client's connection and the one to the server that belongs to it."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.watch = ReplyWatch()

    def abort(self) -> None:
        for writer in (self.client, self.server):
            sock = writer.get_extra_info("socket")
            if sock is not None and sock.fileno() >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST_ON_CLOSE)
            writer.transport.abort()


class Proxy:
    """Forwards 127.0.0.1:`port` to 127.0.0.1:`target`. `swallowed` counts the replies that were kept back."""

    def __init__(self, target: int, *, speaks_postgres: bool = False) -> None:
        self.target = target
        self.speaks_postgres = speaks_postgres
        self.port = free_port()
        self.delay = 0.0
        self.swallowed = 0
        self.accepted = 0
        self._dropping = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._text: bytes | None = None
        self._pairs: set[_Pair] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        await self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.refuse()

    @property
    def connections(self) -> int:
        return len(self._pairs)

    def drop(self) -> None:
        """From now on nothing comes through, in either direction, and no end of a connection is told to the other."""
        self._flowing.clear()

    def reset(self) -> None:
        """Ends all connections with a RST."""
        for pair in list(self._pairs):
            pair.abort()

    async def refuse(self) -> None:
        """Ends all connections and accepts none."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.reset()
        self._flowing.set()

    async def heal(self) -> None:
        """Serves again."""
        self.delay, self._text = 0.0, None
        if not self._flowing.is_set():
            self.reset()
            self._flowing.set()
        if self._server is None:
            await self._listen()

    def swallow_reply_to(self, text: str) -> None:
        """Lets the next statement whose SQL contains `text` happen, then cuts its connection instead of answering."""
        self._text = text.encode()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            await self._flowing.wait()
            back, forth = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        pair = _Pair(writer, forth)
        self._pairs.add(pair)
        ways = [asyncio.ensure_future(self._asks(pair, reader)), asyncio.ensure_future(self._answers(pair, back))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            self._pairs.discard(pair)
            pair.client.close()
            pair.server.close()

    async def _asks(self, pair: _Pair, reader: asyncio.StreamReader) -> None:
        while data := await self._read(reader):
            if self.speaks_postgres and pair.watch.sees_statement(data, self._text):
                self._text = None
            pair.server.write(data)
            await pair.server.drain()

    async def _answers(self, pair: _Pair, reader: asyncio.StreamReader) -> None:
        while data := await self._read(reader):
            if pair.watch.swallows(data):
                if pair.watch.done:
                    self.swallowed += 1
                    pair.abort()
                    return
                continue
            pair.client.write(data)
            await pair.client.drain()

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        try:
            data = await reader.read(_CHUNK)
        except OSError:
            data = b""
        await self._flowing.wait()  # the end of a connection vanishes as well
        if self.delay and data:
            await lasts(self.delay)
        return data
