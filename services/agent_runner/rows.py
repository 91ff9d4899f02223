"""What a step writes: rows of chat_message and run_step by column name."""

from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from services.agent_runner.citations import CitationReader
from services.agent_runner.models.types import ModelReply, ToolCall, Usage
from services.agent_runner.steps import OpenCall, ToolResult
from shared.errors import storable
from shared.json_text import to_json

Row = dict[str, Any]


def assistant_message(message_id: UUID, reply: ModelReply, citations: CitationReader) -> Row:
    """The message of a reply, whose text has been read by `citations`. A reply that calls tools cites nothing yet."""
    metadata: Row = {"finish_reason": reply.finish_reason}
    if citations.dropped:
        metadata["dropped_citations"] = citations.dropped
    if reply.reasoning:
        metadata["reasoning"] = reply.reasoning
    return {
        "id": message_id,
        "role": "assistant",
        "content": reply.text,
        "tool_calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments_json} for call in reply.tool_calls
        ],
        "citations": [] if reply.tool_calls else citations.citations,
        "usage": _usage(reply.usage),
        "model": reply.model,
        "metadata": metadata,
    }


def interrupted_message(message_id: UUID, text: str) -> Row:
    """The message of a reply that was cut off by a cancel: what had been streamed of it."""
    return {"id": message_id, "role": "assistant", "content": text, "metadata": {"interrupted": True}}


def tool_message(call: OpenCall, message_id: UUID, result: ToolResult) -> Row:
    """The message of a tool's result."""
    return {
        "id": message_id,
        "role": "tool",
        "content": result.content,
        "tool_call_id": call.call.id,
        "tool_name": call.call.name,
        "metadata": {**result.metadata, "outcome": "unknown"} if result.uncertain else result.metadata,
    }


def think_entry(n: int, step: int, message_id: UUID, reply: ModelReply, started_at: datetime) -> Row:
    """The journal's entry of a model call."""
    return {
        "n": n,
        "step": step,
        "kind": "think",
        "state": "done",
        "message_id": message_id,
        "usage": _usage(reply.usage),
        "started_at": started_at,
    }


def execute_entry(
    call: OpenCall, message_id: UUID, result: ToolResult | None, started_at: datetime, usage: Usage | None = None
) -> Row:
    """The journal's entry of a tool call; without a result, of one that is about to be made. `usage`: of models that the tool asked."""
    error = result.error if result else None
    return {
        "n": call.n,
        "step": call.step,
        "kind": "execute",
        "state": _state(result),
        "message_id": message_id,
        "tool_name": call.call.name,
        "tool_call_id": call.call.id,
        "arguments": _arguments(call.call),
        "error": error.model_dump() if error else None,
        "usage": _usage(usage),
        "started_at": started_at,
    }


def _state(result: ToolResult | None) -> str:
    if result is None:
        return "started"
    if result.uncertain:
        return "unknown"
    return "failed" if result.error else "done"


def _arguments(call: ToolCall) -> Any:
    """What the model wrote as JSON where the database takes that, else as text."""
    try:
        arguments = orjson.loads(call.arguments_json or "{}")
        if storable(call.arguments_json) == call.arguments_json and "\\u0000" not in to_json(arguments):
            return arguments
    except (orjson.JSONDecodeError, TypeError):
        pass  # not JSON, or nested deeper or with larger numbers than can be written again
    return storable(call.arguments_json)


def _usage(usage: Usage | None) -> Row | None:
    if usage is None:
        return None
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }
