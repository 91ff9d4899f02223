"""The offline model's protocol, seen by plain HTTP and by ChatMind's own model client."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.offline_model import MODEL_ID
from deploy.offline_model.server import build_app
from services.agent_runner.models.client import ModelClient
from services.agent_runner.models.types import (
    Message,
    ModelOptions,
    ModelReply,
    ModelRequest,
    StreamItem,
    TextDelta,
    ToolSpec,
)
from shared.model_registry import load_registry

TOOL = ToolSpec("KnowledgeTool", "Search.", {"type": "object", "properties": {"query": {"type": "string"}}})
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(build_app())
    async with httpx.AsyncClient(transport=transport, base_url="http://offline/v1") as client:
        yield client


async def asked(http: httpx.AsyncClient, **request: Any) -> list[StreamItem]:
    environ = {"CHATMIND_OFFLINE_MODEL_URL": "http://offline/v1"}
    client = ModelClient(load_registry(Path(__file__).parents[3] / "models.toml", environ), http)
    async with aclosing(client.stream(ModelRequest(**request))) as items:
        return [item async for item in items]


async def test_a_search_and_an_answer_through_the_model_client(http: httpx.AsyncClient) -> None:
    question = Message("user", "How long is the warranty?")
    [reply] = await asked(http, messages=(question,), tools=(TOOL,))
    assert isinstance(reply, ModelReply)
    [call] = reply.tool_calls
    assert (call.name, call.arguments_json) == ("KnowledgeTool", '{"query": "How long is the warranty?"}')
    found = '{"hits": [{"n": 1, "title": "Warranty", "content": "The warranty lasts 24 months."}]}'
    history = (question, Message("assistant", "", (call,)), Message("tool", found, tool_call_id=call.id))
    *deltas, answer = await asked(http, messages=history, tools=(TOOL,))
    assert isinstance(answer, ModelReply)
    assert len(deltas) > 2
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == answer.text
    assert answer.text.endswith("The warranty lasts 24 months. [1]")
    assert (answer.model, answer.finish_reason) == (MODEL_ID, "stop")
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 20


async def test_the_length_limit(http: httpx.AsyncClient) -> None:
    reply = (await asked(http, messages=(Message("user", "hello"),), options=ModelOptions(max_tokens=3)))[-1]
    assert isinstance(reply, ModelReply)
    assert (reply.finish_reason, reply.text) == ("length", "I am ChatMind")


async def test_without_streaming(http: httpx.AsyncClient) -> None:
    answer = (await http.post("/chat/completions", json={"messages": HELLO})).json()
    assert (answer["object"], answer["model"]) == ("chat.completion", MODEL_ID)
    assert "offline model" in answer["choices"][0]["message"]["content"]
    assert answer["choices"][0]["finish_reason"] == "stop"


async def test_the_same_question_gets_the_same_answer(http: httpx.AsyncClient) -> None:
    answers = [(await http.post("/chat/completions", json={"messages": HELLO})).json()["choices"] for _ in range(2)]
    assert answers[0] == answers[1]


async def test_models_and_health(http: httpx.AsyncClient) -> None:
    assert (await http.get("/models")).json()["data"][0]["id"] == MODEL_ID
    assert (await http.get("http://offline/health")).json() == {"status": "ok"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"messages": []}',
        b'{"messages": [1]}',
        b'{"messages": [{"role": "user", "content": "x"}], "tools": [1]}',
        b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": -1}',
        b"[" * 100_000,
        b"\xff",
    ],
)
async def test_bad_requests(http: httpx.AsyncClient, body: bytes) -> None:
    answer = await http.post("/chat/completions", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
