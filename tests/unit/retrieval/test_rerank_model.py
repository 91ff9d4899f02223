"""A reranking model over real HTTP: both protocols, and every way in which it can fail."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import httpx
import pytest
import structlog
from pydantic import SecretStr

from services.retrieval.rerank_stage import RerankStage
from services.retrieval.reranking.model import ModelReranker
from services.retrieval.search import Search
from services.retrieval.settings import SearchSettings
from shared.contracts.questions import SearchResult
from shared.embeddings import embedding_http_client
from shared.model_registry import RerankModel
from tests.support.rerank_server import Answer, RerankServer
from tests.unit.retrieval.memory import ConstantEmbedder, MemoryStore, question

CONTENTS = {1: "nothing of it", 2: "a kettle", 3: "a refund for the kettle", 4: "the refund"}
BEST_FIRST = [3, 2, 4, 1]


@pytest.fixture
async def server() -> AsyncIterator[RerankServer]:
    async with RerankServer() as server:
        yield server


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with embedding_http_client() as client:
        yield client


def entry(server: RerankServer, **options: Any) -> RerankModel:
    return RerankModel.model_validate({"name": "judge", "base_url": f"{server.url}/v1", "model": "judge-1", **options})


async def ask(http: httpx.AsyncClient, model: RerankModel, seconds: float = 30.0) -> SearchResult:
    settings = SearchSettings()
    stage = RerankStage(settings, ModelReranker(model, http))
    search = Search(MemoryStore(chunks=4, contents=CONTENTS), ConstantEmbedder(), settings, stage)
    return await search.answer(question(query="refund kettle", mode="dense", rerank="model", explain=True), seconds)


def numbers(found: SearchResult) -> list[int]:
    return [hit.chunk_id.int for hit in found.hits]


async def test_candidates_come_in_the_models_order(server: RerankServer, http: httpx.AsyncClient) -> None:
    found = await ask(http, entry(server))

    assert (numbers(found), found.degraded) == (BEST_FIRST, ())
    (request,) = server.requests
    assert (request["model"], request["query"], request["top_n"]) == ("judge-1", "refund kettle", 4)
    assert request["documents"] == list(CONTENTS.values())
    why = found.hits[0].explanation
    assert why is not None
    assert why.rerank is not None
    assert (why.rerank.by, why.rerank.score, why.rerank.rank_before) == ("judge", 1.0, 3)


async def test_text_embeddings_inference_is_spoken_too(server: RerankServer, http: httpx.AsyncClient) -> None:
    found = await ask(http, entry(server, protocol="tei", base_url=server.url))

    assert (numbers(found), found.degraded) == (BEST_FIRST, ())
    assert server.requests[0]["texts"] == list(CONTENTS.values())


async def test_many_documents_go_in_batches_and_long_ones_are_cut(
    server: RerankServer, http: httpx.AsyncClient
) -> None:
    store = MemoryStore(chunks=7, contents=dict.fromkeys(range(1, 8), "x" * 500))
    settings = SearchSettings()
    stage = RerankStage(settings, ModelReranker(entry(server, batch_size=3, max_chars=100), http))
    await Search(store, ConstantEmbedder(), settings, stage).answer(question(rerank="model"))

    assert sorted(len(request["documents"]) for request in server.requests) == [1, 3, 3]
    assert {len(text) for request in server.requests for text in request["documents"]} == {100}


async def test_the_key_goes_into_the_header(server: RerankServer, http: httpx.AsyncClient) -> None:
    await ask(http, entry(server, api_key_env="JUDGE_KEY", api_key=SecretStr("k-1")))

    assert server.keys == ["Bearer k-1"]


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        ("fewer", "rerank_invalid"),
        ("twice_the_same_index", "rerank_invalid"),
        ("foreign_index", "rerank_invalid"),
        ("nan", "rerank_invalid"),
        ("text", "rerank_invalid"),
        ("no_json", "rerank_invalid"),
        ("error", "rerank_unavailable"),
        ("unauthorized", "rerank_refused"),
    ],
)
@pytest.mark.parametrize("protocol", ["cohere", "tei"])
async def test_a_useless_answer_leaves_the_order_and_is_said(
    server: RerankServer, http: httpx.AsyncClient, answer: Answer, cause: str, protocol: str
) -> None:
    server.answer = answer
    base_url = server.url if protocol == "tei" else f"{server.url}/v1"
    with structlog.testing.capture_logs() as logs:
        found = await ask(http, entry(server, protocol=protocol, base_url=base_url))

    assert (numbers(found), found.degraded) == ([1, 2, 3, 4], ("rerank_unavailable",))
    assert [(log["without"], log["cause"]) for log in logs if log["event"] == "search.degraded"] == [("rerank", cause)]
    assert all(hit.explanation is not None and hit.explanation.rerank is None for hit in found.hits)
    assert "secret" not in str(logs)


@pytest.mark.parametrize(("timeout", "seconds"), [(0.2, 30.0), (30.0, 0.4)], ids=["its own limit", "the asker's"])
async def test_a_late_model_is_not_waited_for(
    server: RerankServer, http: httpx.AsyncClient, timeout: float, seconds: float
) -> None:
    server.answer = "hang"
    found = await ask(http, entry(server, timeout=timeout), seconds)

    assert (numbers(found), found.degraded) == ([1, 2, 3, 4], ("rerank_unavailable",))


async def test_a_server_that_is_away_is_done_without(server: RerankServer, http: httpx.AsyncClient) -> None:
    found = await ask(http, entry(server, base_url="http://127.0.0.1:9/v1"))

    assert (numbers(found), found.degraded) == ([1, 2, 3, 4], ("rerank_unavailable",))


async def test_without_its_key_it_isnt_asked(server: RerankServer, http: httpx.AsyncClient) -> None:
    found = await ask(http, entry(server, api_key_env="JUDGE_KEY"))

    assert found.degraded == ("rerank_unavailable",)
    assert server.requests == []
    assert found.hits[0].chunk_id == UUID(int=1)
