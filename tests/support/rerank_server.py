"""A reranking server over real HTTP that speaks both protocols, counts what it is asked and misbehaves on demand.

Its score is the share of the query's words that a document holds.
"""

import asyncio
from types import TracebackType
from typing import Any, Literal, Self

import orjson
from aiohttp import web

from tests.support.stack import free_port

Answer = Literal[
    "right", "fewer", "twice_the_same_index", "foreign_index", "nan", "text", "no_json", "error", "unauthorized", "hang"
]


def score_of(query: str, document: str) -> float:
    words = query.lower().split()
    return sum(word in document.lower() for word in words) / len(words)


class RerankServer:
    """Answers POST /v1/rerank (Cohere's form) and POST /rerank (that of Text Embeddings Inference) on a free port."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.answer: Answer = "right"
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self._released = asyncio.Event()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/v1/rerank", self._cohere)
        app.router.add_post("/rerank", self._tei)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._released.set()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _cohere(self, request: web.Request) -> web.Response:
        return await self._respond(request, "documents", "relevance_score")

    async def _tei(self, request: web.Request) -> web.Response:
        return await self._respond(request, "texts", "score")

    async def _respond(self, request: web.Request, documents: str, field: str) -> web.Response:
        body = orjson.loads(await request.read())
        self.requests.append(body)
        self.keys.append(request.headers.get("authorization"))
        if self.answer == "hang":
            await self._released.wait()
        if self.answer in ("error", "unauthorized"):
            return web.Response(status=503 if self.answer == "error" else 401, text="secret of the server")
        items: list[dict[str, Any]] = [
            {"index": index, field: score_of(body["query"], text)} for index, text in enumerate(body[documents])
        ]
        items.sort(key=lambda item: -item[field])  # servers answer in their order, not in ours
        text = orjson.dumps(self._damaged(items, field)).replace(b'"NaN"', b"NaN")
        if documents == "documents":
            text = b'{"results": ' + text + b"}"
        return web.Response(body=b"<html>" if self.answer == "no_json" else text, content_type="application/json")

    def _damaged(self, items: list[dict[str, Any]], field: str) -> list[dict[str, Any]]:
        match self.answer:
            case "fewer":
                items.pop()
            case "twice_the_same_index":
                items[0]["index"] = items[-1]["index"]
            case "foreign_index":
                items[0]["index"] = len(items)
            case "nan":
                items[0][field] = "NaN"
            case "text":
                items[0][field] = "0.5"
            case _:
                pass
        return items
