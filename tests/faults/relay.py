"""TCP through Unix sockets, from one network namespace into another: `python -m tests.faults.relay DIRECTORY PORT...` is the inner end."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

_CHUNK = 65_536
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Open = Callable[[], Awaitable[Streams]]


def forward_to_port(port: int) -> Open:
    """Opens connections to 127.0.0.1:port."""

    async def open_it() -> Streams:
        return await asyncio.open_connection("127.0.0.1", port)

    return open_it


def forward_to_socket(path: Path) -> Open:
    """Opens connections to a Unix socket."""

    async def open_it() -> Streams:
        return await asyncio.open_unix_connection(path)

    return open_it


async def listen_on_socket(path: Path, forward: Open) -> asyncio.Server:
    """Serves a Unix socket by connections of `forward`."""
    return await asyncio.start_unix_server(_server(forward), path)


async def listen_on_port(port: int, forward: Open) -> asyncio.Server:
    """Serves 127.0.0.1:port by connections of `forward`."""
    return await asyncio.start_server(_server(forward), "127.0.0.1", port)


def _server(forward: Open) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back, forth = await forward()
        except OSError:
            writer.transport.abort()
            return
        try:
            await asyncio.gather(_pump(reader, forth), _pump(back, writer))
        finally:
            forth.close()
            writer.close()

    return serve


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # the other side's end follows
    finally:
        writer.close()


async def _serve_inside(directory: Path, ports: list[int]) -> None:
    for port in ports:
        await listen_on_port(port, forward_to_socket(directory / f"{port}.out"))
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    asyncio.run(_serve_inside(Path(sys.argv[1]), [int(port) for port in sys.argv[2:]]))
