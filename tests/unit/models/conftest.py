from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from services.agent_runner.models.client import ModelClient, new_http_client
from services.agent_runner.models.retry import RetryPolicy
from services.agent_runner.models.types import Message, ModelReply, ModelRequest, TextDelta
from shared.model_registry import ChatModel, EmbeddingModel, ModelRegistry
from tests.support.scripted_model import ScriptedModel

FAST_RETRY = RetryPolicy(max_attempts=3, base=0.001, max_backoff=0.001, max_retry_after=0.05)

ClientFor = Callable[..., ModelClient]


def registry_of(base_url: str, **fields: Any) -> ModelRegistry:
    chat = {"name": "scripted", "base_url": base_url, "model": "scripted-1", "default": True, **fields}
    embedding = EmbeddingModel(name="none", base_url="http://127.0.0.1:9/v1", model="none", dimension=1, default=True)
    entry = ChatModel.model_validate(chat)
    return ModelRegistry(path=Path("models.toml"), chat={entry.name: entry}, embedding={embedding.name: embedding})


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel() as model:
        yield model


@pytest.fixture
async def client_for(scripted: ScriptedModel) -> AsyncIterator[ClientFor]:
    """Makes clients of the scripted model; keywords are `retry` and the fields of its registry entry."""
    made: list[ModelClient] = []

    def make(**fields: Any) -> ModelClient:
        retry = fields.pop("retry", FAST_RETRY)
        registry = registry_of(fields.pop("base_url", scripted.base_url), **fields)
        made.append(ModelClient(registry, new_http_client(), retry))
        return made[-1]

    yield make
    for client in made:
        await client.aclose()


def question(text: str = "hello", **fields: Any) -> ModelRequest:
    return ModelRequest(messages=(Message("system", "Be brief."), Message("user", text)), **fields)


async def replied(client: ModelClient, request: ModelRequest | None = None) -> tuple[list[str], ModelReply]:
    """The deltas and the reply of one call."""
    deltas: list[str] = []
    async with aclosing(client.stream(request or question())) as items:
        async for item in items:
            if isinstance(item, TextDelta):
                deltas.append(item.text)
            else:
                return deltas, item
    raise AssertionError("the stream ended without a reply")
