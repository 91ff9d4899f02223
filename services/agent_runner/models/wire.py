"""The request as OpenAI-compatible endpoints want it, and what their refusals mean."""

import re
from collections.abc import Mapping
from typing import Any

import orjson

from services.agent_runner.models import tags
from services.agent_runner.models.errors import (
    ModelBadResponseError,
    ModelContextLengthError,
    ModelError,
    ModelRateLimitedError,
    ModelRefusedRequestError,
    ModelUnauthorizedError,
    ModelUnavailableError,
)
from services.agent_runner.models.types import Message, ModelOptions, ModelRequest, ToolCall, ToolSpec
from shared.model_registry import ChatModel

_TOO_LONG = re.compile(r"context.?length|context.?window|maximum context|too many tokens|prompt is too long", re.I)
_NO_CREDIT = re.compile(r"insufficient_quota|insufficient.balance|billing", re.I)
_OVERLOADED = re.compile(r"overload|server_error|unavailable|internal", re.I)


def request_body(model: ChatModel, request: ModelRequest) -> bytes:
    """The JSON of the request; the options' `extra` can't replace what ChatMind itself decides."""
    messages = request.messages
    if model.tool_protocol == "tags":
        messages = tags.with_tools_told(messages, request.tools)
    body: dict[str, Any] = {
        **_options(request.options, model.max_tokens_field),
        "model": model.model,
        "messages": [_message(message) for message in messages],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools and model.tool_protocol == "native":
        body["tools"] = [_tool(tool) for tool in request.tools]
    return orjson.dumps(body)


def error_of_status(status: int, body: bytes) -> ModelError:
    """What an answer other than 200 means."""
    detail = _detail(body)
    said = f"HTTP {status}: {detail}" if detail else f"HTTP {status}"
    if status in (401, 403):
        return ModelUnauthorizedError(said)
    if status == 429:
        return ModelRefusedRequestError(said) if _NO_CREDIT.search(detail) else ModelRateLimitedError(said)
    if status == 408 or status >= 500:
        return ModelUnavailableError(said)
    if status < 400:
        return ModelBadResponseError(f"{said} (is base_url right?)")
    too_long = status == 413 or _TOO_LONG.search(detail)
    return ModelContextLengthError(said) if too_long else ModelRefusedRequestError(said)


def error_in_stream(error: object) -> ModelError:
    """What an error object in a stream that began well means."""
    try:
        detail = _detail(orjson.dumps({"error": error}, default=str))
    except TypeError:  # nested deeper, or with larger numbers, than JSON text can be made of
        detail = "an unreadable object"
    said = f"error in the stream: {detail}"
    if re.search(r"rate.?limit", detail, re.I):
        return ModelRateLimitedError(said)
    if _TOO_LONG.search(detail):
        return ModelContextLengthError(said)
    return ModelUnavailableError(said) if _OVERLOADED.search(detail) else ModelBadResponseError(said)


def _options(options: ModelOptions, max_tokens_field: str) -> dict[str, Any]:
    named = {"temperature": options.temperature, "top_p": options.top_p, max_tokens_field: options.max_tokens}
    return {**options.extra, **{name: value for name, value in named.items() if value is not None}}


def _message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
    if not message.tool_calls:
        return {"role": message.role, "content": message.content}
    calls = [_call(call) for call in message.tool_calls]
    return {"role": message.role, "content": message.content or None, "tool_calls": calls}


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": _sendable(call.arguments_json)},
    }


def _sendable(arguments_json: str) -> str:
    """Endpoints refuse a history whose arguments are no JSON object: what the model got wrong is wrapped in one."""
    try:
        if isinstance(orjson.loads(arguments_json), dict):
            return arguments_json
    except orjson.JSONDecodeError:
        pass
    return orjson.dumps({"unreadable_arguments": arguments_json}).decode()


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


def _detail(body: bytes) -> str:
    """The provider's own words with its code, or the start of a body that isn't theirs."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        return " ".join(body[:300].decode("utf-8", "replace").split())
    error = said.get("error", said) if isinstance(said, Mapping) else said
    if not isinstance(error, Mapping):
        return str(error)
    parts = (error.get("code"), error.get("type"), error.get("message") or error.get("detail"))
    return ": ".join(str(part) for part in parts if part)
