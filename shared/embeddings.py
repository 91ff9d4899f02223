"""Embeddings over the OpenAI protocol: batches, a limit of requests in flight, retries bounded in time, and no vector taken on trust."""

import asyncio
import random
import time
from base64 import b64decode
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import httpx
import numpy as np
import orjson
import structlog
from httpx_aiohttp import HttpxAiohttpClient
from numpy.typing import NDArray

from shared.errors import CodedError
from shared.model_registry import EmbeddingModel, ModelRegistry, UnknownModelError

log = structlog.get_logger()

Vectors: TypeAlias = NDArray[np.float32]
InputType = Literal["query", "passage"]

_CONNECT_SECONDS = 5.0
_FIRST_BACKOFF = 0.2
_MAX_BACKOFF = 5.0
_RETRIED_STATUS = frozenset({408, 409, 425, 429})


class EmbeddingError(CodedError):
    """An embedding model gave no usable vectors."""

    code = "embedding_failed"


class EmbeddingUnavailable(EmbeddingError):
    """The endpoint can't be reached, is too busy or fails; later it may not."""

    code = "embedding_unavailable"
    retryable = True


class EmbeddingUnauthorized(EmbeddingError):
    """The endpoint refuses the key, or there is none."""

    code = "embedding_unauthorized"


class EmbeddingRefused(EmbeddingError):
    """The endpoint doesn't take the request: an unknown model or a text too long, as a rule."""

    code = "embedding_refused"


class EmbeddingInvalid(EmbeddingError):
    """The answer holds too few vectors, wrongly sized ones, or ones that are not finite or all zero."""

    code = "embedding_invalid"


class EmbeddingModelUnknown(EmbeddingError):
    """The models file has no embedding model of that name (any more)."""

    code = "embedding_model_unknown"


def embedding_http_client() -> httpx.AsyncClient:
    """An HTTP client for EmbeddingClient, on aiohttp's connections (a third of the CPU of httpx's own).

    Proxies come from the environment, but never stand before this machine's own models.
    """
    return HttpxAiohttpClient(
        limits=httpx.Limits(max_connections=1000, keepalive_expiry=30),  # the models' own limits are lower
        mounts={"all://127.0.0.1": None, "all://localhost": None, "all://[::1]": None},
    )


class EmbeddingClient:
    """Asks the registry's embedding models. The HTTP client is the caller's to close.

    A batch that fails for reasons outside of it is asked for again until `retry_seconds` have passed since its first try.
    """

    def __init__(self, registry: ModelRegistry, http: httpx.AsyncClient, *, retry_seconds: float = 20.0) -> None:
        self._registry = registry
        self._http = http
        self._retry_seconds = retry_seconds
        self._turns = {name: asyncio.Semaphore(entry.concurrency) for name, entry in registry.embedding.items()}
        self._without_base64: set[str] = set()

    async def embed_queries(self, model: str, texts: Sequence[str]) -> Vectors:
        """Vectors of questions, shape (len(texts), dimension), in the order of the texts. Raises EmbeddingError."""
        return await self._embed(self._entry(model), "query", texts)

    async def embed_passages(self, model: str, texts: Sequence[str]) -> Vectors:
        """Vectors of what is searched, shape (len(texts), dimension), in the order of the texts. Raises EmbeddingError."""
        return await self._embed(self._entry(model), "passage", texts)

    def _entry(self, model: str) -> EmbeddingModel:
        try:
            entry = self._registry.embedding_model(model)
        except UnknownModelError as error:
            raise EmbeddingModelUnknown(str(error)) from None
        if entry.problem is not None:
            raise EmbeddingUnauthorized(f"embedding model {entry.name}: {entry.problem}")
        return entry

    async def _embed(self, entry: EmbeddingModel, input_type: InputType, texts: Sequence[str]) -> Vectors:
        prefix = entry.query_prefix if input_type == "query" else entry.passage_prefix
        prefixed = [prefix + text for text in texts]
        batches = [prefixed[start : start + entry.batch_size] for start in range(0, len(texts), entry.batch_size)]
        if not batches:
            return np.empty((0, entry.dimension), np.float32)
        if len(batches) == 1:
            return await self._embed_batch(entry, input_type, batches[0])
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._embed_batch(entry, input_type, batch)) for batch in batches]
        except ExceptionGroup as failures:  # the first one ended the others
            raise failures.exceptions[0] from None
        return np.concatenate([task.result() for task in tasks])

    async def _embed_batch(self, entry: EmbeddingModel, input_type: InputType, texts: list[str]) -> Vectors:
        async with self._turns[entry.name]:
            ends = time.monotonic() + self._retry_seconds
            failures = 0
            while True:
                try:
                    return await self._try(entry, input_type, texts)
                except _Again as again:
                    failures += 1
                    wait = again.after or random.uniform(0.5, 1) * min(_FIRST_BACKOFF * 2**failures, _MAX_BACKOFF)  # noqa: S311 - spreads load only
                    if time.monotonic() + wait > ends:
                        raise EmbeddingUnavailable(f"embedding model {entry.name}: {again}") from None
                    log.warning("embedding.repeated", model=entry.name, cause=str(again), wait=round(wait, 3))
                    await asyncio.sleep(wait)

    async def _try(self, entry: EmbeddingModel, input_type: InputType, texts: list[str]) -> Vectors:
        base64 = entry.name not in self._without_base64
        response = await self._post(entry, _request(entry, input_type, texts, base64=base64))
        if base64 and response.status_code in (400, 422):
            # Some servers refuse the format instead of ignoring it.
            response = await self._post(entry, _request(entry, input_type, texts, base64=False))
            if response.is_success:
                self._without_base64.add(entry.name)
        _check_status(entry, response)
        return _read_vectors(entry, response.content, len(texts))

    async def _post(self, entry: EmbeddingModel, request: dict[str, Any]) -> httpx.Response:
        headers = {"content-type": "application/json"}
        if entry.api_key is not None:
            headers["authorization"] = f"Bearer {entry.api_key.get_secret_value()}"
        try:
            async with asyncio.timeout(entry.timeout):
                return await self._http.post(
                    f"{entry.base_url}/embeddings",
                    content=orjson.dumps(request),
                    headers=headers,
                    timeout=httpx.Timeout(entry.timeout, connect=min(_CONNECT_SECONDS, entry.timeout)),
                )
        except (httpx.TransportError, TimeoutError) as error:
            raise _Again(type(error).__name__) from error


class _Again(Exception):
    """A failure that may pass. `after` is how many seconds the endpoint asks to be left alone, None when it doesn't say."""

    def __init__(self, cause: str, after: float | None = None) -> None:
        super().__init__(cause)
        self.after = after


def _request(entry: EmbeddingModel, input_type: InputType, texts: list[str], *, base64: bool) -> dict[str, Any]:
    request: dict[str, Any] = {"model": entry.model, "input": texts}
    if base64:
        request["encoding_format"] = "base64"  # a quarter of the bytes, and nothing to parse
    if entry.input_type:
        request["input_type"] = input_type
    return request


def _check_status(entry: EmbeddingModel, response: httpx.Response) -> None:
    status = response.status_code
    if response.is_success:
        return
    # Never the body: it may repeat the text or the key.
    message = f"embedding model {entry.name}: HTTP {status}"
    if status in (401, 403):
        raise EmbeddingUnauthorized(message)
    if status >= 500 or status in _RETRIED_STATUS:
        seconds = response.headers.get("retry-after", "")
        raise _Again(f"HTTP {status}", float(seconds) if seconds.isascii() and seconds.isdigit() else None)
    raise EmbeddingRefused(message)


def _read_vectors(entry: EmbeddingModel, body: bytes, count: int) -> Vectors:
    """The vectors of an answer in the order of the texts, shape (count, dimension). Raises EmbeddingInvalid."""
    try:
        items = orjson.loads(body)["data"]
        vectors = [_read_vector(item["embedding"]) for item in items]
        # Servers that leave the index out keep the order.
        order = [item.get("index", position) for position, item in enumerate(items)]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise _invalid(entry, "the answer can't be read") from None
    if len(vectors) != count:
        raise _invalid(entry, f"{len(vectors)} vectors for {count} texts")
    if any(type(index) is not int for index in order) or sorted(order) != list(range(count)):
        raise _invalid(entry, "the indices don't number the texts")
    if any(vector.shape != (entry.dimension,) for vector in vectors):
        raise _invalid(entry, f"a vector has not the {entry.dimension} dimensions that the models file says")
    ordered = np.empty((count, entry.dimension), np.float32)
    ordered[order] = vectors
    if not np.isfinite(ordered).all():
        raise _invalid(entry, "a vector is not finite")
    if not ordered.any(axis=1).all():
        raise _invalid(entry, "a vector is all zero")
    return ordered


def _read_vector(embedding: object) -> Vectors:
    if isinstance(embedding, str):
        return np.frombuffer(b64decode(embedding, validate=True), "<f4")
    with np.errstate(over="ignore"):  # becomes infinite, which is refused
        return np.asarray(embedding, np.float32)


def _invalid(entry: EmbeddingModel, problem: str) -> EmbeddingInvalid:
    return EmbeddingInvalid(f"embedding model {entry.name}: {problem}")
