"""What the scripted model can be told to say, and how that looks in the OpenAI protocol."""

from collections.abc import Iterator
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict

AUTO = "auto"
MODEL_ID = "scripted"


class ScriptedCall(BaseModel):
    """A tool call; `id` and `index` are left out of the stream when null."""

    model_config = ConfigDict(extra="forbid")

    name: str
    arguments: dict[str, Any] | str = {}
    id: str | None = AUTO
    index: int | Literal["auto"] | None = "auto"


class ScriptedReply(BaseModel):
    """One answer of the model and what goes wrong with it.

    Faults: `hang` sends nothing at all, `silent` stops after `after` deltas and keeps the connection, `cut` breaks it
    there, `end` ends the body there without a finish_reason, `garbage` and `error` put a broken line or an error object
    there.
    """

    model_config = ConfigDict(extra="forbid")

    match: str = ""
    times: int = 1
    """Requests that get this reply; 0 means all from now on."""
    text: str = ""
    repeat: int = 1
    """The text is said so many times over."""
    reasoning: str = ""
    tool_calls: list[ScriptedCall] = []
    chunk_chars: int = 16
    delay_ms: float = 0
    """Before every delta."""
    split_bytes: int = 0
    """Write the stream in pieces of so many bytes, which splits lines and characters."""
    finish_reason: str | None = AUTO
    usage: bool = True
    status: int = 200
    headers: dict[str, str] = {}
    body: str | None = None
    """Sent as it is instead of a completion."""
    plain_json: bool = False
    """Answer with one JSON object although a stream was asked for."""
    fault: Literal["", "hang", "silent", "cut", "end", "garbage", "error"] = ""
    gate: str = ""
    """Wait there after `after` deltas (with 0 before the first byte, status line included)."""
    after: int = 1


def stream_deltas(reply: ScriptedReply) -> Iterator[dict[str, Any]]:
    """The `delta` objects of the stream, one a chunk."""
    for piece in _pieces(reply.reasoning, reply.chunk_chars):
        yield {"reasoning_content": piece}
    for piece in _pieces(reply.text * reply.repeat, reply.chunk_chars):
        yield {"content": piece}
    for position, call in enumerate(reply.tool_calls):
        place = {} if call.index is None else {"index": position if call.index == AUTO else call.index}
        first = place | ({} if call.id is None else {"id": _call_id(call, position)})
        yield {"tool_calls": [{**first, "type": "function", "function": {"name": call.name, "arguments": ""}}]}
        for piece in _pieces(_arguments(call), reply.chunk_chars):
            yield {"tool_calls": [{**place, "function": {"arguments": piece}}]}


def stream_event(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
    return _event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})


def closing_events(reply: ScriptedReply) -> Iterator[bytes]:
    """What follows the last delta: finish_reason, usage, the end mark."""
    if reply.finish_reason is not None:
        yield stream_event({}, _finish_reason(reply))
    if reply.usage:
        yield _event({"choices": [], "usage": _usage(reply)})
    yield b"data: [DONE]\n\n"


def fault_event(fault: str) -> bytes:
    """The line that the faults `garbage` and `error` put into the stream."""
    if fault == "garbage":
        return b'data: {"choices": [{"del\n\n'
    return b'data: {"error": {"message": "the model fell over", "type": "server_error"}}\n\n'


def completion(reply: ScriptedReply) -> dict[str, Any]:
    """The whole reply as one `chat.completion` object."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text * reply.repeat or None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = [
            {
                "id": _call_id(call, position),
                "type": "function",
                "function": {"name": call.name, "arguments": _arguments(call)},
            }
            for position, call in enumerate(reply.tool_calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": _finish_reason(reply)}
    usage = {"usage": _usage(reply)} if reply.usage else {}
    return {"id": "chatcmpl-0", "object": "chat.completion", "model": MODEL_ID, "choices": [choice], **usage}


def unscripted_reply(body: dict[str, Any]) -> ScriptedReply:
    """What a simple agent's model says: look in the knowledge base first, then quote what came back."""
    result, question = "", ""
    for message in body["messages"]:
        if message["role"] == "user":
            question, result = text_of(message), ""
        elif message["role"] == "tool":
            result = text_of(message)
    offered = {tool["function"]["name"] for tool in body.get("tools") or []}
    if "KnowledgeTool" in offered and not result:
        return ScriptedReply(tool_calls=[ScriptedCall(name="KnowledgeTool", arguments={"query": question})])
    quoted = "\n".join(result.splitlines()[:3])
    return ScriptedReply(text=f"Scripted answer to: {question}" + (f"\n{quoted}" if quoted else ""))


def last_user_text(body: dict[str, Any]) -> str:
    texts = (text_of(message) for message in reversed(body["messages"]) if message["role"] == "user")
    return next(texts, "")


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _event(fields: dict[str, Any]) -> bytes:
    chunk = {"id": "chatcmpl-0", "object": "chat.completion.chunk", "model": MODEL_ID, **fields}
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


def _pieces(text: str, size: int) -> Iterator[str]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


def _arguments(call: ScriptedCall) -> str:
    return call.arguments if isinstance(call.arguments, str) else orjson.dumps(call.arguments).decode()


def _call_id(call: ScriptedCall, position: int) -> str:
    return f"call_{position}" if call.id in (AUTO, None) else str(call.id)


def _finish_reason(reply: ScriptedReply) -> str | None:
    if reply.finish_reason != AUTO:
        return reply.finish_reason
    return "tool_calls" if reply.tool_calls else "stop"


def _usage(reply: ScriptedReply) -> dict[str, int]:
    said = len(reply.text) * reply.repeat // 4 + 1
    return {"prompt_tokens": 7, "completion_tokens": said, "total_tokens": said + 7}
