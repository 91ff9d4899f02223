"""Many event streams on which nothing happens, and what each costs a gateway in memory.

python -m tests.integration.gateway.idle_streams --url http://127.0.0.1:8000 --key-file .local/api_key --pid 4711 --clients 2000
"""

import argparse
import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
import psutil

from tests.support.api import create_session

_OPENED_AT_ONCE = 50
_WARM_UP = 100


class IdleClient:
    """A client over a bare socket: its side of the connection shall not be what is measured."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, url: httpx.URL, path: str, key: str) -> "IdleClient":
        """An open stream, after its first bytes. Raises ConnectionError for another answer than 200."""
        reader, writer = await asyncio.open_connection(url.host, url.port, limit=2**16)
        head = f"GET {path} HTTP/1.1\r\nHost: {url.host}\r\nAuthorization: Bearer {key}\r\nAccept: text/event-stream\r\n\r\n"
        writer.write(head.encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 200 "):
            writer.close()
            raise ConnectionError(answer.split(b"\r\n")[0].decode())
        await reader.readuntil(b"retry: 2000\n\n")
        return cls(reader, writer)

    async def comment(self) -> None:
        """Returns with the next keep-alive."""
        await self._reader.readuntil(b": keep-alive\n\n")

    def close(self) -> None:
        self._writer.close()


@dataclass(frozen=True, slots=True)
class Cost:
    """What clients cost. Bytes; `open_seconds` is for all of them."""

    clients: int
    bytes_per_client: float
    open_seconds: float
    all_kept_alive: bool


@asynccontextmanager
async def idle_clients(url: httpx.URL, path: str, key: str, count: int) -> AsyncIterator[list[IdleClient]]:
    """So many open streams."""
    clients: list[IdleClient] = []
    gate = asyncio.Semaphore(_OPENED_AT_ONCE)

    async def open_one() -> None:
        async with gate:
            clients.append(await IdleClient.open(url, path, key))

    try:
        await asyncio.gather(*(open_one() for _ in range(count)))
        yield clients
    finally:
        for client in clients:
            client.close()


async def measure(url: httpx.URL, path: str, key: str, pid: int, count: int, keep_alive: float = 15.0) -> Cost:
    """Opens so many streams beside a hundred that are open already: what the first ones cost is the program's own."""
    process = psutil.Process(pid)
    loop = asyncio.get_running_loop()
    async with idle_clients(url, path, key, _WARM_UP):
        before, started = process.memory_full_info().uss, loop.time()
        async with idle_clients(url, path, key, count) as clients:
            opened = loop.time() - started
            cost = (process.memory_full_info().uss - before) / count
            outcomes = await asyncio.gather(
                *(asyncio.wait_for(client.comment(), keep_alive * 2 + 5) for client in clients), return_exceptions=True
            )
    return Cost(count, round(cost), round(opened, 2), all(outcome is None for outcome in outcomes))


async def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--key-file", required=True, type=Path)
    parser.add_argument("--pid", required=True, type=int)
    parser.add_argument("--clients", type=int, default=2000)
    options = parser.parse_args()
    key = options.key_file.read_text().strip()
    async with httpx.AsyncClient(base_url=options.url, headers={"Authorization": f"Bearer {key}"}) as client:
        session = await create_session(client)
    path = f"/api/sessions/{session['id']}/events"
    cost = await measure(httpx.URL(options.url), path, key, options.pid, options.clients)
    print(json.dumps(asdict(cost)))


if __name__ == "__main__":
    asyncio.run(_main())
