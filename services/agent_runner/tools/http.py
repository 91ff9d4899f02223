"""HttpTool: a tool that an operator has added. Calling it is a POST of the arguments as JSON."""

from typing import Any

import httpx
import orjson

from services.agent_runner.models.types import ToolSpec
from services.agent_runner.steps import Agent, ToolContext, ToolResult
from services.agent_runner.tools.base import OutcomeLost, ToolFailed
from shared.contracts.tools import ToolEffect
from shared.tool_registry import HttpToolEntry, compile_schema

_MAX_ERRORS = 5  # problems of one call's arguments that the model is told of
_MAX_DETAIL_CHARS = 300
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)
_REFUSALS = frozenset({*range(400, 500), 503} - {408})
"""Answers by which a tool says that it has done nothing. A redirect often means that it has; what else fails may have failed afterwards."""


def new_http_client() -> httpx.AsyncClient:
    """A client for tools: it follows no redirects and keeps no connections.

    A kept connection that the server closes at the moment of a call looks like a call whose answer was lost.
    """
    return httpx.AsyncClient(
        follow_redirects=False,
        timeout=None,  # noqa: S113 - the toolbox limits the whole call
        limits=httpx.Limits(max_keepalive_connections=0),
        mounts={"all://127.0.0.1": None, "all://localhost": None, "all://[::1]": None},  # no proxy before these
    )


class HttpTool:
    """One entry of the tools file."""

    def __init__(self, entry: HttpToolEntry, http: httpx.AsyncClient, max_bytes: int) -> None:
        self._entry = entry
        self._http = http
        self._max_bytes = max_bytes
        self._validator = compile_schema(entry.parameters)

    @property
    def name(self) -> str:
        return self._entry.name

    @property
    def effect(self) -> ToolEffect:
        return self._entry.effect

    @property
    def timeout(self) -> float | None:
        return self._entry.timeout

    def spec(self, agent: Agent) -> ToolSpec | None:
        """The same for every agent; None while the tool's key is missing."""
        if self._entry.problem:
            return None
        return ToolSpec(self._entry.name, self._entry.description, self._entry.parameters)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """The body of a 2xx answer. Raises ToolFailed for arguments against the schema, other answers and a tool that can't be reached, and
        OutcomeLost for a call that was sent and not answered."""
        self._check(arguments)
        try:
            async with self._http.stream(
                "POST", self._entry.url, content=orjson.dumps(arguments), headers=self._headers(context)
            ) as response:
                is_compressed = response.headers.get("content-encoding", "identity") != "identity"
                body, is_whole = await self._read(response)
        except _NOT_SENT as error:
            raise ToolFailed(
                f"{self.name} can't be reached ({type(error).__name__})", code="tool_unreachable"
            ) from error
        except httpx.HTTPError as error:
            raise OutcomeLost(f"the connection to {self.name} broke ({type(error).__name__})") from error
        if is_compressed:  # though it was asked for as it is
            body = b""
        result = self._result(response.status_code, body, is_whole=is_whole)
        return self._without_result("the result is compressed", "result_unreadable") if is_compressed else result

    def _check(self, arguments: dict[str, Any]) -> None:
        problems = [
            f"{'.'.join(map(str, error.instance_path)) or 'arguments'}: {error.message[:_MAX_DETAIL_CHARS]}"
            for error, _ in zip(self._validator.iter_errors(arguments), range(_MAX_ERRORS), strict=False)
        ]
        if problems:
            raise ToolFailed("; ".join(problems), code="invalid_arguments")

    def _headers(self, context: ToolContext) -> dict[str, str]:
        # No compression: a small body could unpack to any size.
        headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "chatmind",
            "ChatMind-Run-Id": str(context.run_id),
            "ChatMind-Attempt": str(context.attempt),
        }
        if self.effect != "read":
            headers["Idempotency-Key"] = context.idempotency_key
        if self._entry.api_key:
            headers["Authorization"] = f"Bearer {self._entry.api_key.get_secret_value()}"
        return headers

    async def _read(self, response: httpx.Response) -> tuple[bytes, bool]:
        """The body, at most so much of it as is allowed, and whether that is all."""
        body = bytearray()
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > self._max_bytes:
                return bytes(body[: self._max_bytes]), False
        return bytes(body), True

    def _result(self, status: int, body: bytes, *, is_whole: bool) -> ToolResult:
        text = body.decode("utf-8", "replace")
        if not 200 <= status < 300:
            detail = f"HTTP {status}: {text[:_MAX_DETAIL_CHARS]}" if text else f"HTTP {status}"
            raise ToolFailed(detail) if status in _REFUSALS else OutcomeLost(detail)
        if is_whole:
            return ToolResult(text)
        return self._without_result(f"the result has more than {self._max_bytes} bytes", "result_too_large")

    def _without_result(self, note: str, code: str) -> ToolResult:
        if self.effect == "read":
            raise ToolFailed(note, code=code)
        # What was done is done: to call that a failure would invite the model to do it again.
        return ToolResult(orjson.dumps({"done": True, "result": None, "note": note}).decode())
