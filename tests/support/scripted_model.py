"""A chat model that says what a test tells it to, over real HTTP in the OpenAI protocol, with the faults real ones have.

In process: `async with ScriptedModel() as model: model.add(text="Hello")`, then talk to `model.base_url`. A process of its
own (`python -m tests.support.scripted_model --port 8399`) is told the same over HTTP:

    POST   /_script        one reply or a list of them (fields of `ScriptedReply`), added to those still waiting
    DELETE /_script        forgets replies, requests and gates
    GET    /_requests      {"count", "requests": [{"body", "headers", "received_at", "finished_at", "disconnected", "invalid_history"}]}
                           (`invalid_history`: what a strict endpoint would refuse the messages for; empty when nothing)
    GET    /_gate/NAME     {"open", "waiting"}: how many replies stand at the gate
    POST   /_gate/NAME     opens it for good

A request takes the first waiting reply whose `match` is in its last user message. Without one it behaves like a simple
agent: one KnowledgeTool call when that tool is offered and has not answered yet, else an answer that quotes its result.
"""

import argparse
import asyncio
import contextlib
import time
from collections.abc import Awaitable
from http import HTTPStatus
from typing import Any, Self

import orjson
from pydantic import TypeAdapter

from tests.support.chat_history import history_problems
from tests.support.scripted_replies import (
    MODEL_ID,
    ScriptedReply,
    closing_events,
    completion,
    fault_event,
    last_user_text,
    stream_deltas,
    stream_event,
    unscripted_reply,
)

_END_OF_STREAM = b"0\r\n\r\n"
_REPLIES = TypeAdapter(list[ScriptedReply])


class _ClientGoneError(Exception):
    pass


class _Gate:
    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.waiting = 0


class _Connection:
    """The asking side of one HTTP connection; notices when it goes away while the answer waits."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def request(self) -> tuple[str, str, dict[str, str], bytes]:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ", 2)
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])
        }
        body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        return method, path, headers, body

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()

    async def wait(self, something: Awaitable[object]) -> None:
        """Wait for `something`; raises _ClientGoneError when the client goes first."""
        gone = asyncio.create_task(self._reader.read(1))
        waited = asyncio.ensure_future(something)
        try:
            await asyncio.wait({gone, waited}, return_when=asyncio.FIRST_COMPLETED)
            if not waited.done():
                raise _ClientGoneError
        finally:
            for task in (gone, waited):
                task.cancel()
            await asyncio.gather(gone, waited, return_exceptions=True)

    def abort(self) -> None:
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class ScriptedModel:
    def __init__(self, port: int = 0) -> None:
        self._port = port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self.forget()

    def forget(self) -> None:
        self.waiting: list[ScriptedReply] = []
        self.requests: list[dict[str, Any]] = []
        self._gates: dict[str, _Gate] = {}

    def add(self, **reply: Any) -> None:
        self.waiting.append(ScriptedReply.model_validate(reply))

    def gate(self, name: str) -> _Gate:
        return self._gates.setdefault(name, _Gate())

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        connection = _Connection(reader, writer)
        try:
            while True:
                method, path, headers, body = await connection.request()
                if path.endswith("/chat/completions"):
                    await self._complete(connection, headers, orjson.loads(body))
                else:
                    _write_json(connection, *self._control(method, path, body))
                await connection.drain()
        except (_ClientGoneError, asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            pass  # cancelled only by __aexit__; asyncio's streams log a cancelled connection as an error
        finally:
            await connection.close()

    def _control(self, method: str, path: str, body: bytes) -> tuple[int, object]:
        match method, path.split("/")[1:]:
            case "POST", ["_script"]:
                said = orjson.loads(body)
                self.waiting += _REPLIES.validate_python(said if isinstance(said, list) else [said])
                return 200, {"waiting": len(self.waiting)}
            case "DELETE", ["_script"]:
                self.forget()
                return 200, {"waiting": 0}
            case "GET", ["_requests"]:
                return 200, {"count": len(self.requests), "requests": self.requests}
            case (("GET" | "POST"), ["_gate", name]):
                gate = self.gate(name)
                if method == "POST":
                    gate.opened.set()
                return 200, {"open": gate.opened.is_set(), "waiting": gate.waiting}
            case "GET", ["health"] | ["v1", "models"]:
                return 200, {"object": "list", "data": [{"id": MODEL_ID, "object": "model"}]}
        return 404, {"error": {"message": "no such route"}}

    async def _complete(self, connection: _Connection, headers: dict[str, str], body: dict[str, Any]) -> None:
        record = {
            "body": body,
            "headers": headers,
            "received_at": time.time(),
            "finished_at": None,
            "disconnected": False,
            "invalid_history": history_problems(body["messages"]),
        }
        self.requests.append(record)
        try:
            await self._answer(connection, self._reply_to(body), body)
        except (_ClientGoneError, OSError):
            record["disconnected"] = True
            raise
        finally:
            record["finished_at"] = time.time()

    def _reply_to(self, body: dict[str, Any]) -> ScriptedReply:
        asked = last_user_text(body)
        for reply in self.waiting:
            if reply.match in asked:
                if reply.times == 1:
                    self.waiting.remove(reply)
                reply.times = max(0, reply.times - 1)
                return reply
        return unscripted_reply(body)

    async def _answer(self, connection: _Connection, reply: ScriptedReply, body: dict[str, Any]) -> None:
        if reply.fault == "hang":
            await connection.wait(asyncio.Event().wait())
        if reply.gate and reply.after == 0:
            await self._stand_at(connection, reply.gate)
        if reply.body is not None or reply.status != 200:
            _write_body(connection, reply.status, (reply.body or "").encode(), reply.headers)
        elif reply.plain_json or not body.get("stream"):
            _write_json(connection, 200, completion(reply))
        else:
            await self._stream(connection, reply)

    async def _stream(self, connection: _Connection, reply: ScriptedReply) -> None:
        fields = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked", **reply.headers}
        connection.write(_head(200, fields))
        deltas = list(stream_deltas(reply))
        stop_at = min(reply.after, len(deltas))
        for position, delta in enumerate(deltas):
            if position == stop_at and not await self._goes_on(connection, reply):
                return
            if reply.delay_ms:
                await connection.wait(asyncio.sleep(reply.delay_ms / 1000))
            await _write_event(connection, stream_event(delta), reply.split_bytes)
            if reply.delay_ms:
                await connection.drain()
        if stop_at == len(deltas) and not await self._goes_on(connection, reply):
            return
        for event in closing_events(reply):
            await _write_event(connection, event, reply.split_bytes)
        connection.write(_END_OF_STREAM)

    async def _goes_on(self, connection: _Connection, reply: ScriptedReply) -> bool:
        """Stand at the reply's gate, do its fault; False where the stream is over with that."""
        if reply.gate and reply.after:
            await self._stand_at(connection, reply.gate)
        await connection.drain()
        match reply.fault:
            case "silent":
                await connection.wait(asyncio.Event().wait())
            case "cut":
                connection.abort()
                return False
            case "end":
                connection.write(_END_OF_STREAM)
                return False
            case "garbage" | "error":
                await _write_event(connection, fault_event(reply.fault), reply.split_bytes)
        return True

    async def _stand_at(self, connection: _Connection, name: str) -> None:
        gate = self.gate(name)
        gate.waiting += 1
        try:
            await connection.drain()
            await connection.wait(gate.opened.wait())
        finally:
            gate.waiting -= 1


def _head(status: int, fields: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _write_body(connection: _Connection, status: int, body: bytes, fields: dict[str, str]) -> None:
    connection.write(
        _head(status, {"Content-Type": "application/json", "Content-Length": str(len(body)), **fields}) + body
    )


def _write_json(connection: _Connection, status: int, value: object) -> None:
    _write_body(connection, status, orjson.dumps(value), {})


async def _write_event(connection: _Connection, event: bytes, split_bytes: int) -> None:
    size = split_bytes or len(event)
    for start in range(0, len(event), size):
        piece = event[start : start + size]
        connection.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        if split_bytes:
            # The loop turns between pieces, so that each is a write of its own on the socket.
            await connection.drain()
            await asyncio.sleep(0)


async def _serve(port: int) -> None:
    async with ScriptedModel(port) as model:
        print(f"scripted model on {model.base_url}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(parser.parse_args().port))
