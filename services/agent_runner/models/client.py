"""The chat models over HTTP: always streaming, within the limits of their registry entries."""

import asyncio
import itertools
from collections.abc import AsyncGenerator
from contextlib import aclosing

import httpx
import structlog
from httpx_aiohttp import HttpxAiohttpClient

from services.agent_runner.models.assembly import ReplyAssembly, ReplyLimits
from services.agent_runner.models.errors import (
    ModelError,
    ModelNotConfiguredError,
    ModelRateLimitedError,
    ModelTimeoutError,
    ModelUnavailableError,
)
from services.agent_runner.models.response import Clock, read_at_most, read_chunks
from services.agent_runner.models.retry import RetryPolicy, retry_after
from services.agent_runner.models.tags import TaggedReplyAssembly
from services.agent_runner.models.types import ModelRequest, StreamItem, TextDelta
from services.agent_runner.models.wire import error_of_status, request_body
from shared.model_registry import ChatModel, ModelRegistry, UnknownModelError

_MAX_ERROR_BYTES = 16 * 1024
_DEFAULT_RETRY = RetryPolicy()
_DEFAULT_LIMITS = ReplyLimits()

_log = structlog.get_logger()


def new_http_client() -> httpx.AsyncClient:
    """An httpx client on aiohttp's connections.

    Against a local zero-latency endpoint a streamed call costs 0.7 to 0.8 ms of CPU, with httpx's own transport 1.9, and
    with 64 calls in flight still 0.6 to 0.8, with httpx's own 4 to 5. Closing a response in mid-stream closes its socket.
    Proxies come from the environment, but never stand before this machine's own models.
    """
    return HttpxAiohttpClient(
        limits=httpx.Limits(max_connections=1000, keepalive_expiry=30),  # the models' own limits are lower
        mounts={"all://127.0.0.1": None, "all://localhost": None, "all://[::1]": None},
        timeout=None,  # ModelClient keeps its own four
    )


class ModelClient:
    """Asks the registry's chat models. One for a process; `aclose` closes the HTTP client too."""

    def __init__(
        self,
        registry: ModelRegistry,
        http: httpx.AsyncClient,
        retry: RetryPolicy = _DEFAULT_RETRY,
        limits: ReplyLimits = _DEFAULT_LIMITS,
    ) -> None:
        self._registry = registry
        self._http = http
        self._retry = retry
        self._limits = limits
        self._urls = {name: httpx.URL(f"{model.base_url}/chat/completions") for name, model in registry.chat.items()}
        self._slots = {name: asyncio.Semaphore(model.concurrency) for name, model in registry.chat.items()}

    async def aclose(self) -> None:
        await self._http.aclose()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        """The text of the reply as it comes, and at the end the complete reply.

        Raises ModelError. A reply is complete only with a finish_reason. Failures that may pass (no connection, 429, 5xx)
        are tried again while nothing was yielded yet and the model's total time lasts. Leaving in mid-stream closes the
        connection, at once when the task is cancelled or the generator closed (`contextlib.aclosing`).
        """
        model = self._model(request.model)
        body = request_body(model, request)
        async with self._slots[model.name]:
            deadline = asyncio.get_running_loop().time() + model.timeouts.total
            for attempt in itertools.count(1):
                yielded = False
                try:
                    async with aclosing(self._attempt(model, body, deadline)) as items:
                        async for item in items:
                            yielded = True
                            yield item
                    return
                except ModelError as error:
                    error.concerns(model.name, model.api_key)
                    wait = None if yielded else self._wait(error, attempt, deadline)
                    if wait is None:
                        raise
                    _log.warning("model.retried", model=model.name, code=error.code, attempt=attempt, wait_s=wait)
                await asyncio.sleep(wait)

    def _model(self, name: str | None) -> ChatModel:
        try:
            model = self._registry.chat_model(name)
        except UnknownModelError as error:
            raise ModelNotConfiguredError(str(error)) from None
        if model.problem:
            raise ModelNotConfiguredError(f"{model.name}: {model.problem}")
        return model

    def _wait(self, error: ModelError, attempt: int, deadline: float) -> float | None:
        if not isinstance(error, ModelUnavailableError | ModelRateLimitedError):
            return None
        wait = self._retry.wait(attempt, error.retry_after)
        now = asyncio.get_running_loop().time()
        return wait if wait is not None and now + wait < deadline else None

    async def _attempt(self, model: ChatModel, body: bytes, deadline: float) -> AsyncGenerator[StreamItem, None]:
        clock = Clock(model.timeouts, deadline)
        assembly = TaggedReplyAssembly(self._limits) if model.tool_protocol == "tags" else ReplyAssembly(self._limits)
        async with aclosing(await self._send(model, body, clock)) as response:
            try:
                async with aclosing(read_chunks(response, clock)) as chunks:
                    async for chunk in chunks:
                        if text := assembly.add(chunk):
                            yield TextDelta(text)
            except (ModelUnavailableError, ModelTimeoutError):
                if assembly.finish_reason is None:
                    raise
        rest, reply = assembly.finish()
        if rest:
            yield TextDelta(rest)
        yield reply

    async def _send(self, model: ChatModel, body: bytes, clock: Clock) -> httpx.Response:
        """The response with its body still to be read; raises what a status other than 200 means."""
        timeout = {"connect": model.timeouts.connect, "read": None, "write": None, "pool": None}
        # Built by hand: nothing of the client's defaults (headers, cookies, timeouts) is to be merged in.
        request = httpx.Request(
            "POST",
            self._urls[model.name],
            headers=_headers(model),
            content=body,
            extensions={"timeout": timeout},
        )
        response = await clock.within(self._http.send(request, stream=True))
        if response.status_code == 200:
            return response
        async with aclosing(response):
            error = error_of_status(response.status_code, await read_at_most(response, clock, _MAX_ERROR_BYTES))
        error.retry_after = retry_after(response.headers)
        raise error


def _headers(model: ChatModel) -> dict[str, str]:
    # No compression: it would hold small pieces of a stream back.
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": "chatmind"}
    if model.api_key:
        headers["Authorization"] = f"Bearer {model.api_key.get_secret_value()}"
    return headers
