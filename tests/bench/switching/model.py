"""`python -m tests.bench.switching.model --host H --port N`: an embeddings server of two models that costs next to nothing.

It speaks the OpenAI protocol. GET /counts says how many passages each model was asked for, and how many seconds that took here.
"""

import argparse
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson
import uvicorn

from tests.bench.switching.space import DIMENSIONS, Space

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Models:
    """An ASGI application."""

    def __init__(self) -> None:
        self._spaces = {model: Space(model) for model in DIMENSIONS}
        self._counts = {model: {"passages": 0, "seconds": 0.0} for model in DIMENSIONS}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        body = await _body(receive)
        answer = self._embed(body) if scope["path"] == "/v1/embeddings" else orjson.dumps(self._counts)
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def _embed(self, body: bytes) -> bytes:
        request = orjson.loads(body)
        assert request["encoding_format"] == "base64"
        began = time.perf_counter()
        vectors = [self._spaces[request["model"]].vector(text) for text in request["input"]]
        data = [
            {"index": index, "embedding": b64encode(vector.tobytes()).decode()} for index, vector in enumerate(vectors)
        ]
        if request["input_type"] == "passage":
            counts = self._counts[request["model"]]
            counts["passages"] += len(vectors)
            counts["seconds"] += time.perf_counter() - began
        return orjson.dumps({"data": data, "model": request["model"]})


async def _body(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    uvicorn.run(Models(), host=arguments.host, port=arguments.port, log_level="warning", lifespan="off")
