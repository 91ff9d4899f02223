"""Search through the gateway: the question that retrieval gets, its answer, and its refusals."""

from collections.abc import AsyncIterator

import httpx
import pytest

from shared.contracts.questions import Hit, SearchResult, TenantScope
from shared.errors import CodedError
from shared.ids import new_id
from tests.integration.gateway.stand_in import Retrieval, answering_questions
from tests.support.api import RunningGateway, create_knowledge_base, created, problem_of


@pytest.fixture
async def retrieval(rabbitmq_url: str) -> AsyncIterator[Retrieval]:
    async with answering_questions(rabbitmq_url) as stand_in:
        yield stand_in


@pytest.fixture
async def patient_gateway(database_url: str, rabbitmq_url: str) -> AsyncIterator[RunningGateway]:
    running = RunningGateway(database_url, rabbitmq_url)
    await running.start()
    yield running
    await running.stop()


def hit(knowledge_base_id: object) -> Hit:
    return Hit.model_validate(
        {
            "chunk_id": new_id(),
            "document_id": new_id(),
            "knowledge_base_id": knowledge_base_id,
            "filename": "设计.md",
            "version": 1,
            "ordinal": 0,
            "title": "订单表",
            "heading_path": ("库", "订单表"),
            "content": "…",
            "char_start": 0,
            "char_end": 1,
            "score": 0.75,
        }
    )


async def test_the_question_is_the_tenants_own_and_the_answer_comes_back(
    patient_gateway: RunningGateway, retrieval: Retrieval
) -> None:
    client = await patient_gateway.client()
    base = await create_knowledge_base(client)
    found = hit(base["id"])
    retrieval.result = SearchResult(hits=(found,))
    body = {"query": "订单", "top_k": 7, "min_score": 0.2, "mode": "keyword", "explain": True}
    path = f"/api/knowledge-bases/{base['id']}/search"
    answer = await created(client.post(path, json=body, headers={"X-Request-ID": "mine"}))
    assert SearchResult.model_validate(answer) == retrieval.result
    question = retrieval.questions[0]
    tenant_id = await patient_gateway.parts.pool.fetchval("SELECT tenant_id FROM knowledge_base")
    assert isinstance(question.scope, TenantScope)
    assert (question.scope.tenant_id, str(question.scope.knowledge_base_id)) == (tenant_id, base["id"])
    assert question.model_dump(include=set(body)) == body
    assert question.request_id == "mine"


async def test_defaults(patient_gateway: RunningGateway, retrieval: Retrieval) -> None:
    client = await patient_gateway.client()
    base = await create_knowledge_base(client)
    assert await created(client.post(f"/api/knowledge-bases/{base['id']}/search", json={"query": "x"})) == {
        "hits": [],
        "degraded": [],
        "explanation": None,
    }
    question = retrieval.questions[0]
    assert (question.top_k, question.min_score, question.mode, question.explain) == (5, None, "hybrid", False)
    assert (question.queries, question.rerank, question.filter) == ((), None, None)


async def test_filters_and_wordings_reach_retrieval(patient_gateway: RunningGateway, retrieval: Retrieval) -> None:
    client = await patient_gateway.client()
    base = await create_knowledge_base(client)
    document_id = str(new_id())
    conditions = {"document_ids": [document_id], "tags": ["hr"], "date_from": "2024-01-31"}
    body = {"query": "x", "queries": ["y", "z"], "rerank": "off", "filter": conditions}
    await created(client.post(f"/api/knowledge-bases/{base['id']}/search", json=body))

    question = retrieval.questions[0]
    assert (question.queries, question.rerank) == (("y", "z"), "off")
    assert question.filter is not None
    assert question.filter.model_dump(mode="json", exclude_none=True) == conditions


@pytest.mark.parametrize(
    ("refusal", "status", "code"),
    [
        (CodedError("away", code="embedding_unavailable", retryable=True), 503, "retrieval_unavailable"),
        (CodedError("NaN", code="embedding_invalid"), 502, "embedding_failed"),
        (CodedError("key", code="embedding_unauthorized"), 502, "embedding_failed"),
        (CodedError("wrong", code="question_malformed"), 500, "retrieval_failed"),
        (CodedError("gone", code="knowledge_base_not_found"), 404, "not_found"),
    ],
)
async def test_refusals_are_problems(
    patient_gateway: RunningGateway, retrieval: Retrieval, refusal: CodedError, status: int, code: str
) -> None:
    client = await patient_gateway.client()
    base = await create_knowledge_base(client)
    retrieval.refusal = refusal
    answer = await client.post(f"/api/knowledge-bases/{base['id']}/search", json={"query": "x"})
    problem = problem_of(answer, status, code)
    if status != 404:
        assert problem["cause"] == refusal.code


async def test_nobody_answers(client: httpx.AsyncClient) -> None:
    base = await create_knowledge_base(client)
    answer = await client.post(f"/api/knowledge-bases/{base['id']}/search", json={"query": "x"})
    assert problem_of(answer, 503, "retrieval_unavailable")["cause"] in ("question_timeout", "question_undeliverable")
    assert answer.headers["retry-after"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"query": ""}, "query"),
        ({"query": " "}, "query"),
        ({"query": "x" * 20_001}, "query"),
        ({"query": "a\0b"}, "query"),
        ({"query": "x", "top_k": 0}, "top_k"),
        ({"query": "x", "top_k": 51}, "top_k"),
        ({"query": "x", "min_score": 1.5}, "min_score"),
        ({"query": "x", "mode": "psychic"}, "mode"),
        ({"query": "x", "rerank": "psychic"}, "rerank"),
        ({"query": "x", "queries": ["y"] * 5}, "queries"),
        ({"query": "x", "queries": [" "]}, "queries.0"),
        ({"query": "x", "filter": {"document_ids": []}}, "filter.document_ids"),
        ({"query": "x", "filter": {"tags": ["hr", "a\0b"]}}, "filter.tags.1"),
        ({"query": "x", "filter": {"date_from": 0}}, "filter.date_from"),
        ({"query": "x", "filter": {"date_from": "0001-01-01"}}, "filter.date_from"),
        ({"query": "x", "filter": {"date_to": "9999-12-31"}}, "filter.date_to"),
        ({"query": "x", "filter": {"date_from": "2024-02-01", "date_to": "2024-01-01"}}, "filter"),
        ({"query": "x", "filter": {"owner": "me"}}, "filter.owner"),
    ],
)
async def test_questions_that_are_none(client: httpx.AsyncClient, body: dict[str, object], field: str) -> None:
    base = await create_knowledge_base(client)
    answer = await client.post(f"/api/knowledge-bases/{base['id']}/search", json=body)
    assert [error["field"] for error in problem_of(answer, 422, "invalid_request")["errors"]] == [field]
