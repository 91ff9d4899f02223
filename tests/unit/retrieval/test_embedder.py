"""The cache of questions' vectors."""

from pathlib import Path

import httpx
import orjson
import pytest

from services.retrieval.embedder import QueryEmbedder
from services.retrieval.settings import EmbeddingSettings
from shared.embeddings import EmbeddingClient, EmbeddingError
from shared.model_registry import EmbeddingModel, ModelRegistry


class Server:
    """Counts the texts that it embeds."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.requests: list[list[str]] = []
        self.broken = False

    def answer(self, request: httpx.Request) -> httpx.Response:
        if self.broken:
            return httpx.Response(401)
        texts = orjson.loads(request.content)["input"]
        self.texts += texts
        self.requests.append(texts)
        return httpx.Response(200, json={"data": [{"embedding": [len(text), 1.0]} for text in texts]})


def embedder(server: Server, cache_size: int) -> QueryEmbedder:
    models = {
        name: EmbeddingModel(name=name, base_url="http://embeddings.test/v1", model=name, dimension=2)
        for name in ("a", "b")
    }
    registry = ModelRegistry(path=Path("models.toml"), chat={}, embedding=models)
    http = httpx.AsyncClient(transport=httpx.MockTransport(server.answer))
    return QueryEmbedder(EmbeddingClient(registry, http), EmbeddingSettings(cache_size=cache_size, max_chars=10))


async def test_a_question_is_embedded_once_for_each_model() -> None:
    server = Server()
    vectors = embedder(server, 10)
    (first,) = await vectors.embed("a", ["question"])
    (again,) = await vectors.embed("a", ["question"])

    assert again.tolist() == first.tolist() == [8.0, 1.0]
    await vectors.embed("b", ["question"])
    assert server.texts == ["question", "question"]


async def test_what_was_asked_longest_ago_is_forgotten_first() -> None:
    server = Server()
    vectors = embedder(server, 2)
    for query in ("1", "2", "1", "3", "1", "2"):
        await vectors.embed("a", [query])

    assert server.texts == ["1", "2", "3", "2"]


async def test_a_cache_of_size_none_keeps_nothing() -> None:
    server = Server()
    vectors = embedder(server, 0)
    await vectors.embed("a", ["1"])
    await vectors.embed("a", ["1"])

    assert server.texts == ["1", "1"]


async def test_failures_are_not_kept() -> None:
    server = Server()
    vectors = embedder(server, 2)
    server.broken = True
    with pytest.raises(EmbeddingError):
        await vectors.embed("a", ["1"])
    server.broken = False

    (vector,) = await vectors.embed("a", ["1"])
    assert vector.tolist() == [1.0, 1.0]


async def test_of_a_long_question_the_beginning_is_embedded() -> None:
    server = Server()
    vectors = embedder(server, 10)
    await vectors.embed("a", ["0123456789, and so on for pages"])
    await vectors.embed("a", ["0123456789, and so on for other pages"])

    assert server.texts == ["0123456789"]


async def test_wordings_are_asked_for_in_one_request_without_those_that_are_known() -> None:
    server = Server()
    vectors = embedder(server, 10)
    await vectors.embed("a", ["22"])
    found = await vectors.embed("a", ["1", "22", "333", "1"])

    assert [vector.tolist() for vector in found] == [[1.0, 1.0], [2.0, 1.0], [3.0, 1.0], [1.0, 1.0]]
    assert server.requests == [["22"], ["1", "333"]]
