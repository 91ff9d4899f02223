"""What a step writes: rows of chat_message and run_step by column name."""

from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from services.agent_runner.models.types import ModelReply, ToolCall, Usage
from services.agent_runner.steps import ToolResult
from shared.errors import storable
from shared.ids import new_id
from shared.json_text import to_json

Row = dict[str, Any]


def assistant_message(message_id: UUID, reply: ModelReply) -> Row:
    """The message of a reply; citations are added by the loop."""
    metadata: Row = {"finish_reason": reply.finish_reason}
    if reply.reasoning:
        metadata["reasoning"] = reply.reasoning
    return {
        "id": message_id,
        "role": "assistant",
        "content": reply.text,
        "tool_calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments_json} for call in reply.tool_calls
        ],
        "usage": _usage(reply.usage),
        "model": reply.model,
        "metadata": metadata,
    }


def tool_message(call: ToolCall, result: ToolResult) -> Row:
    """The message of a tool's result."""
    return {
        "id": new_id(),
        "role": "tool",
        "content": result.content,
        "tool_call_id": call.id,
        "tool_name": call.name,
        "metadata": result.metadata,
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


def execute_entry(n: int, step: int, call: ToolCall, result: ToolResult, message_id: UUID, started_at: datetime) -> Row:
    """The journal's entry of a tool call."""
    return {
        "n": n,
        "step": step,
        "kind": "execute",
        "state": "failed" if result.error else "done",
        "message_id": message_id,
        "tool_name": call.name,
        "tool_call_id": call.id,
        "arguments": _arguments(call),
        "error": result.error.model_dump() if result.error else None,
        "started_at": started_at,
    }


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
