"""A small embeddings server that speaks the OpenAI protocol over real HTTP, counts what it is asked and misbehaves on demand.

async with EmbeddingServer() as server:
    server.url                 # http://127.0.0.1:PORT/v1
    server.texts               # every text that was asked for, in order of arrival
    server.answer = "nan"      # from now on; see Answer
    server.hold_after(3)       # three requests are answered, the next ones wait ...
    await server.held.wait()   # ... (now one does) ...
    server.release()           # ... until now
    await server.stop(); await server.start()    # connections are refused meanwhile; same port afterwards
"""

import asyncio
import hashlib
import math
from types import TracebackType
from typing import Any, Literal, Self

import orjson

from tests.support.stack import free_port

Answer = Literal[
    "right", "shuffled", "nan", "zero", "wrong_dimension", "fewer", "twice_the_same_index", "error", "unauthorized"
]

_STATUS = {200: b"OK", 401: b"Unauthorized", 404: b"Not Found", 503: b"Service Unavailable"}


def vector_of(text: str, dimension: int) -> list[float]:
    """A unit vector that depends on the text alone."""
    digest = hashlib.shake_256(text.encode()).digest(dimension)
    values = [byte - 127.5 for byte in digest]
    norm = math.sqrt(sum(value * value for value in values))
    return [value / norm for value in values]


class EmbeddingServer:
    """Answers POST /v1/embeddings on a free port of 127.0.0.1."""

    def __init__(self, dimension: int = 8) -> None:
        self.dimension = dimension
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.answer: Answer = "right"
        self.texts: list[str] = []
        self.requests: list[dict[str, Any]] = []
        self.held = asyncio.Event()
        self._open = asyncio.Event()
        self._open.set()
        self._free_requests: int | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def stop(self) -> None:
        """Closes the port and every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        connections = list(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    def hold_after(self, requests: int) -> None:
        """Answers so many further requests and lets those after them wait for `release`."""
        self._free_requests = requests
        self.held.clear()
        self._open.clear()

    def release(self) -> None:
        self._free_requests = None
        self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while (request := await _read_request(reader)) is not None:
                status, body = await self._respond(*request)
                head = b"HTTP/1.1 %d %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                writer.write(head % (status, _STATUS[status], len(body)) + body)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client was killed, or this server was stopped
        finally:
            self._connections.discard(task)
            writer.close()

    async def _respond(self, target: bytes, body: bytes) -> tuple[int, bytes]:
        if target != b"/v1/embeddings":
            return 404, b"{}"
        request = orjson.loads(body)
        self.requests.append(request)
        self.texts += request["input"]
        await self._pass_gate()
        if self.answer == "error":
            return 503, orjson.dumps({"error": {"message": "overloaded"}})
        if self.answer == "unauthorized":
            return 401, orjson.dumps({"error": {"message": "wrong key"}})
        data = self._damaged([vector_of(text, self.dimension) for text in request["input"]])
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        # Not orjson: it writes NaN as null, real servers write it as Python's json does.
        answer = orjson.dumps({"object": "list", "data": data, "model": request["model"], "usage": usage})
        return 200, answer.replace(b'"NaN"', b"NaN")

    async def _pass_gate(self) -> None:
        if self._free_requests is not None:
            self._free_requests -= 1
            if self._free_requests < 0:
                self.held.set()
                await self._open.wait()

    def _damaged(self, vectors: list[list[float]]) -> list[dict[str, Any]]:
        data: list[dict[str, Any]] = [
            {"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)
        ]
        match self.answer:
            case "shuffled":
                data.reverse()
            case "nan":
                data[-1]["embedding"] = ["NaN", *data[-1]["embedding"][1:]]
            case "zero":
                data[-1]["embedding"] = [0.0] * self.dimension
            case "wrong_dimension":
                data[-1]["embedding"].append(0.5)
            case "fewer":
                data.pop()
            case "twice_the_same_index":
                data[-1]["index"] = 0 if len(data) > 1 else 1
            case _:
                pass
        return data


async def _read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes] | None:
    """Target and body of the next request, or None when the client has closed the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    request_line, *lines = head.lower().split(b"\r\n")
    length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), 0)
    return request_line.split(b" ")[1], await reader.readexactly(length)
