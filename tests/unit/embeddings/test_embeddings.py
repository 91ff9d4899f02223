"""The client of embedding endpoints, against answers right and wrong."""

import asyncio
import base64
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pytest
from pydantic import SecretStr

from shared.embeddings import (
    EmbeddingClient,
    EmbeddingInvalid,
    EmbeddingModelUnknown,
    EmbeddingRefused,
    EmbeddingUnauthorized,
    EmbeddingUnavailable,
)
from shared.model_registry import EmbeddingModel, ModelRegistry

Answer = Callable[[dict[str, Any]], httpx.Response]


class Endpoint:
    """An embeddings endpoint; `answers` are used up first, then it is right."""

    def __init__(self, *answers: Answer | httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[httpx.Headers] = []

    def take(self, request: httpx.Request) -> httpx.Response:
        body = orjson.loads(request.content)
        self.requests.append(body)
        self.headers.append(request.headers)
        answer = self.answers.pop(0) if self.answers else right
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx.Response) else answer(body)


def vector(text: str) -> list[float]:
    return [float(len(text)), 1.0, -0.5]


def data(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"index": n, "embedding": vector(text)} for n, text in enumerate(body["input"])]


def right(body: dict[str, Any]) -> httpx.Response:
    return httpx.Response(200, json={"data": data(body)})


def as_base64(body: dict[str, Any]) -> httpx.Response:
    items = [
        {**item, "embedding": base64.b64encode(struct.pack("<3f", *item["embedding"])).decode()} for item in data(body)
    ]
    return httpx.Response(200, json={"data": items})


def client(
    endpoint: Endpoint, *, key: SecretStr | None = None, retry_seconds: float = 5.0, **options: Any
) -> EmbeddingClient:
    entry = EmbeddingModel(
        name="tiny", base_url="http://embeddings.test/v1", model="tiny-1", dimension=3, api_key=key, **options
    )
    registry = ModelRegistry(path=Path("models.toml"), chat={}, embedding={"tiny": entry})
    http = httpx.AsyncClient(transport=httpx.MockTransport(endpoint.take))
    return EmbeddingClient(registry, http, retry_seconds=retry_seconds)


@pytest.fixture(autouse=True)
def quick_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.embeddings._FIRST_BACKOFF", 0.001)


@pytest.mark.parametrize("encode", [right, as_base64])
async def test_vectors_come_in_the_order_of_the_texts(encode: Answer) -> None:
    vectors = await client(Endpoint(encode)).embed_passages("tiny", ["a", "bb", "ccc"])

    assert vectors.dtype == np.float32
    assert vectors.tolist() == [vector("a"), vector("bb"), vector("ccc")]


async def test_the_index_decides_not_the_place() -> None:
    def shuffled(body: dict[str, Any]) -> httpx.Response:
        return httpx.Response(200, json={"data": data(body)[::-1]})

    vectors = await client(Endpoint(shuffled)).embed_passages("tiny", ["a", "bb", "ccc"])

    assert vectors[:, 0].tolist() == [1.0, 2.0, 3.0]


async def test_texts_are_sent_in_batches_and_joined_again() -> None:
    endpoint = Endpoint()
    vectors = await client(endpoint, batch_size=4).embed_passages("tiny", ["x" * n for n in range(1, 11)])

    assert sorted(len(request["input"]) for request in endpoint.requests) == [2, 4, 4]
    assert vectors[:, 0].tolist() == list(range(1, 11))


async def test_no_texts_are_no_request() -> None:
    endpoint = Endpoint()

    assert (await client(endpoint).embed_passages("tiny", [])).shape == (0, 3)
    assert endpoint.requests == []


async def test_prefixes_tell_queries_from_passages() -> None:
    endpoint = Endpoint()
    tiny = client(endpoint, query_prefix="query: ", passage_prefix="passage: ")
    await tiny.embed_queries("tiny", ["a"])
    await tiny.embed_passages("tiny", ["a"])

    assert [request["input"] for request in endpoint.requests] == [["query: a"], ["passage: a"]]
    assert all("input_type" not in request for request in endpoint.requests)


async def test_input_type_tells_queries_from_passages() -> None:
    endpoint = Endpoint()
    tiny = client(endpoint, input_type=True)
    await tiny.embed_queries("tiny", ["a"])
    await tiny.embed_passages("tiny", ["a"])

    assert [(request["input"], request["input_type"]) for request in endpoint.requests] == [
        (["a"], "query"),
        (["a"], "passage"),
    ]


async def test_the_request_names_model_and_key() -> None:
    endpoint = Endpoint()
    await client(endpoint, api_key_env="TINY_KEY", key=SecretStr("k-1")).embed_queries("tiny", ["a"])

    assert endpoint.requests[0]["model"] == "tiny-1"
    assert endpoint.headers[0]["authorization"] == "Bearer k-1"


async def test_a_missing_key_is_named_without_a_request() -> None:
    endpoint = Endpoint()
    with pytest.raises(EmbeddingUnauthorized, match="TINY_KEY"):
        await client(endpoint, api_key_env="TINY_KEY").embed_queries("tiny", ["a"])

    assert endpoint.requests == []


async def test_an_unknown_model_is_an_error_with_a_code() -> None:
    with pytest.raises(EmbeddingModelUnknown) as failure:
        await client(Endpoint()).embed_queries("gone", ["a"])

    assert (failure.value.code, failure.value.retryable) == ("embedding_model_unknown", False)


@pytest.mark.parametrize(
    "trouble",
    [
        httpx.Response(429, headers={"retry-after": "0"}),
        httpx.Response(429),
        httpx.Response(500),
        httpx.Response(503),
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        httpx.RemoteProtocolError("gone"),
    ],
)
async def test_passing_trouble_is_tried_again(trouble: httpx.Response | Exception) -> None:
    endpoint = Endpoint(trouble, trouble)

    assert (await client(endpoint).embed_queries("tiny", ["a"])).tolist() == [vector("a")]
    assert len(endpoint.requests) == 3


async def test_trouble_that_stays_is_unavailable_after_the_time_for_retries() -> None:
    endpoint = Endpoint(*[httpx.Response(503)] * 1000)
    with pytest.raises(EmbeddingUnavailable) as failure:
        await client(endpoint, retry_seconds=0.05).embed_queries("tiny", ["a"])

    assert (failure.value.code, failure.value.retryable) == ("embedding_unavailable", True)
    assert len(endpoint.requests) > 1


async def test_waiting_longer_than_there_is_time_is_not_begun() -> None:
    endpoint = Endpoint(httpx.Response(429, headers={"retry-after": "3600"}))
    with pytest.raises(EmbeddingUnavailable):
        await client(endpoint).embed_queries("tiny", ["a"])

    assert len(endpoint.requests) == 1


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_never_tried_again_and_never_shown(status: int) -> None:
    endpoint = Endpoint(httpx.Response(status, text="bad key k-secret"))
    with pytest.raises(EmbeddingUnauthorized) as failure:
        await client(endpoint, api_key_env="KEY", key=SecretStr("k-secret")).embed_queries("tiny", ["a"])

    assert failure.value.code == "embedding_unauthorized"
    assert "k-secret" not in str(failure.value)
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize("status", [400, 404, 413, 422])
async def test_a_refused_request_is_not_repeated(status: int) -> None:
    endpoint = Endpoint(*[httpx.Response(status)] * 9)
    with pytest.raises(EmbeddingRefused) as failure:
        await client(endpoint).embed_queries("tiny", ["a"])

    assert (failure.value.code, failure.value.retryable) == ("embedding_refused", False)
    assert len(endpoint.requests) <= 2


async def test_a_server_that_refuses_base64_is_asked_for_numbers_from_then_on() -> None:
    endpoint = Endpoint(httpx.Response(400))
    tiny = client(endpoint)
    for _ in range(2):
        assert (await tiny.embed_queries("tiny", ["a"])).tolist() == [vector("a")]

    assert [request.get("encoding_format") for request in endpoint.requests] == ["base64", None, None]


def changed(**change: Any) -> Answer:
    def answer(body: dict[str, Any]) -> httpx.Response:
        items = data(body)
        items[-1].update(change)
        return httpx.Response(200, content=orjson.dumps({"data": items}))

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        changed(embedding=[1.0, 2.0]),
        changed(embedding=[1.0, 2.0, 3.0, 4.0]),
        changed(embedding=[0.0, 0.0, 0.0]),
        changed(embedding=[1.0, None, 1.0]),
        changed(embedding=[1.0, 1e300, 1.0]),
        changed(embedding=[[1.0], [1.0], [1.0]]),
        changed(embedding=[1.0, "x", 1.0]),
        changed(embedding=None),
        changed(embedding=1.0),
        changed(embedding={}),
        changed(embedding="not base64!"),
        changed(embedding=base64.b64encode(b"12345").decode()),
        changed(embedding=base64.b64encode(struct.pack("<3f", 1.0, float("nan"), 1.0)).decode()),
        changed(embedding=base64.b64encode(struct.pack("<2f", 1.0, 1.0)).decode()),
        changed(index=0),
        changed(index=7),
        changed(index=-1),
        changed(index="1"),
        changed(index=True),
        lambda body: httpx.Response(200, json={"data": data(body)[:-1]}),
        lambda body: httpx.Response(200, json={"data": data(body) * 2}),
        httpx.Response(200, json={"data": []}),
        httpx.Response(200, json={"data": None}),
        httpx.Response(200, json={"data": ["x", "y"]}),
        httpx.Response(200, json={}),
        httpx.Response(200, json=[]),
        httpx.Response(200, content=b""),
        httpx.Response(200, content=b"<html>"),
        httpx.Response(200, content=b'{"data": [{"embedding": [NaN, 1, 1]}, {"embedding": [1, 1, 1]}]}'),
    ],
)
async def test_no_vector_is_taken_on_trust(answer: Answer | httpx.Response) -> None:
    endpoint = Endpoint(answer)
    with pytest.raises(EmbeddingInvalid) as failure:
        await client(endpoint).embed_passages("tiny", ["a", "bb"])

    assert (failure.value.code, failure.value.retryable) == ("embedding_invalid", False)
    assert len(endpoint.requests) == 1


async def test_one_failing_batch_fails_all_with_its_own_error() -> None:
    endpoint = Endpoint(right, httpx.Response(401))

    with pytest.raises(EmbeddingUnauthorized):
        await client(endpoint, batch_size=1).embed_passages("tiny", ["a", "bb", "ccc"])


async def test_no_more_requests_are_in_flight_than_the_model_takes() -> None:
    in_flight = most = 0
    opened = asyncio.Event()

    async def take(request: httpx.Request) -> httpx.Response:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        if in_flight == 2:
            opened.set()
        await opened.wait()
        in_flight -= 1
        return right(orjson.loads(request.content))

    entry = EmbeddingModel(
        name="tiny", base_url="http://e.test/v1", model="t", dimension=3, batch_size=1, concurrency=2
    )
    registry = ModelRegistry(path=Path("models.toml"), chat={}, embedding={"tiny": entry})
    tiny = EmbeddingClient(registry, httpx.AsyncClient(transport=httpx.MockTransport(take)))

    assert (await tiny.embed_passages("tiny", ["x"] * 9)).shape == (9, 3)
    assert most == 2


async def test_a_server_that_never_answers_is_unavailable() -> None:
    async def never(_: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    entry = EmbeddingModel(name="tiny", base_url="http://e.test/v1", model="t", dimension=3, timeout=0.05)
    registry = ModelRegistry(path=Path("models.toml"), chat={}, embedding={"tiny": entry})
    tiny = EmbeddingClient(registry, httpx.AsyncClient(transport=httpx.MockTransport(never)), retry_seconds=0.05)

    with pytest.raises(EmbeddingUnavailable):
        await tiny.embed_queries("tiny", ["a"])
