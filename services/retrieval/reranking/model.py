"""Reranking by a model over HTTP, in either of the two forms that servers have, and no score taken on trust.

* `cohere`: {model, query, documents, top_n} -> {results: [{index, relevance_score}]}; Cohere, Jina, vLLM, Infinity, llama.cpp and others.
* `tei`: {query, texts} -> [{index, score}]; Hugging Face's Text Embeddings Inference.

Nothing is tried twice: a reranker is an extra, and who waits for it gets the order without it.
"""

import asyncio
from collections.abc import Sequence
from math import isfinite
from typing import Any

import httpx
import orjson

from services.retrieval.ports import Passage
from services.retrieval.reranking.judging import Asked, Candidate, Judgement
from shared.errors import CodedError
from shared.model_registry import RerankModel

_CONNECT_SECONDS = 2.0


class RerankError(CodedError):
    """A reranking model gave no usable scores."""

    code = "rerank_failed"


class RerankUnavailable(RerankError):
    """The endpoint can't be reached, is too slow or fails."""

    code = "rerank_unavailable"
    retryable = True


class RerankRefused(RerankError):
    """The endpoint doesn't take the request or the key."""

    code = "rerank_refused"


class RerankInvalid(RerankError):
    """The answer hasn't one finite score for each document."""

    code = "rerank_invalid"


class ModelReranker:
    """One reranking model. The HTTP client is the caller's to close."""

    def __init__(self, entry: RerankModel, http: httpx.AsyncClient) -> None:
        self._entry = entry
        self._http = http
        self._turns = asyncio.Semaphore(entry.concurrency)

    @property
    def name(self) -> str:
        return self._entry.name

    async def judge(self, asked: Asked, candidates: Sequence[Candidate]) -> list[Judgement]:
        """The model's scores, on its own scale. Raises RerankError."""
        if self._entry.problem is not None:
            raise RerankRefused(f"reranking model {self.name}: {self._entry.problem}")
        query = asked.query[: self._entry.max_chars]
        texts = [_text(candidate.passage)[: self._entry.max_chars] for candidate in candidates]
        size = self._entry.batch_size
        batches = [texts[start : start + size] for start in range(0, len(texts), size)]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._score(query, batch)) for batch in batches]
        except ExceptionGroup as failures:  # the first one ended the others
            raise failures.exceptions[0] from None
        return [Judgement(score) for task in tasks for score in task.result()]

    async def _score(self, query: str, texts: list[str]) -> list[float]:
        async with self._turns:
            response = await self._post(_request(self._entry, query, texts))
        if not response.is_success:
            # Never the body: it may repeat the texts or the key.
            message = f"reranking model {self.name}: HTTP {response.status_code}"
            busy = response.status_code >= 500 or response.status_code in (408, 429)
            raise RerankUnavailable(message) if busy else RerankRefused(message)
        return _read_scores(self._entry, response.content, len(texts))

    async def _post(self, request: dict[str, Any]) -> httpx.Response:
        headers = {"content-type": "application/json"}
        if self._entry.api_key is not None:
            headers["authorization"] = f"Bearer {self._entry.api_key.get_secret_value()}"
        seconds = self._entry.timeout
        try:
            async with asyncio.timeout(seconds):
                return await self._http.post(
                    f"{self._entry.base_url}/rerank",
                    content=orjson.dumps(request),
                    headers=headers,
                    timeout=httpx.Timeout(seconds, connect=min(_CONNECT_SECONDS, seconds)),
                )
        except (httpx.TransportError, TimeoutError) as error:
            raise RerankUnavailable(f"reranking model {self.name}: {type(error).__name__}") from error


def _text(passage: Passage) -> str:
    """What the model reads of a passage: its headings, which may be all that says what it is about, and its content."""
    return "\n".join((" > ".join(passage.heading_path) or passage.title, passage.content)).strip()


def _request(entry: RerankModel, query: str, texts: list[str]) -> dict[str, Any]:
    if entry.protocol == "tei":
        return {"query": query, "texts": texts, "truncate": True}
    return {"model": entry.model, "query": query, "documents": texts, "top_n": len(texts), "return_documents": False}


def _read_scores(entry: RerankModel, body: bytes, count: int) -> list[float]:
    """The scores in the order of the documents. Raises RerankInvalid."""
    try:
        answer = orjson.loads(body)
        items = answer if entry.protocol == "tei" else answer["results"]
        field = "score" if entry.protocol == "tei" else "relevance_score"
        scores = {item["index"]: item[field] for item in items}
    except (ValueError, TypeError, KeyError):
        raise _invalid(entry, "the answer can't be read") from None
    if len(items) != count or any(type(index) is not int for index in scores) or sorted(scores) != list(range(count)):
        raise _invalid(entry, f"the results don't number the {count} documents")
    if any(
        isinstance(score, bool) or not isinstance(score, int | float) or not isfinite(score)
        for score in scores.values()
    ):
        raise _invalid(entry, "a score is not a finite number")
    return [float(scores[index]) for index in range(count)]


def _invalid(entry: RerankModel, problem: str) -> RerankInvalid:
    return RerankInvalid(f"reranking model {entry.name}: {problem}")
