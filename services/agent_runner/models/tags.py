"""Tool calls for models that have none of their own: tools are told in the system prompt and called in tags.

<tool_call>{"name": "KnowledgeTool", "arguments": {"query": "..."}}</tool_call>
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from services.agent_runner.models.assembly import ReplyAssembly, ReplyLimits, new_call_id
from services.agent_runner.models.errors import ModelReplyTooLargeError, ModelTruncatedCallError
from services.agent_runner.models.types import Message, ModelReply, ToolCall, ToolSpec

OPEN = "<tool_call>"
CLOSE = "</tool_call>"
UNREADABLE = "unreadable_tool_call"
"""The name of a call whose tag holds no JSON object with a name; no tool has it, so the model is told of its mistake."""

_INSTRUCTIONS = """You can call these tools (parameters are JSON Schemas):
{tools}
To call one, write exactly this and nothing after your calls; the results come in the next message:
{open}{{"name": "...", "arguments": {{...}}}}{close}"""


def with_tools_told(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[Message, ...]:
    """The same conversation without native tool calls; the tools are described at the end of the system prompt."""
    told = tuple(_plain(message) for message in messages)
    if not tools:
        return told
    text = _INSTRUCTIONS.format(tools="\n".join(map(_described, tools)), open=OPEN, close=CLOSE)
    if told and told[0].role == "system":
        return (Message("system", f"{told[0].content}\n\n{text}"), *told[1:])
    return (Message("system", text), *told)


class TagReader:
    """Separates the calls from the text while it streams; no part of a tag is ever let through as text."""

    def __init__(self) -> None:
        self._held = ""
        self._inside = False
        self.bodies: list[str] = []

    def feed(self, text: str) -> str:
        """The part of the text so far that is certainly no tag."""
        self._held += text
        shown: list[str] = []
        while (at := self._held.find(CLOSE if self._inside else OPEN)) >= 0:
            before, self._held = self._held[:at], self._held[at + len(CLOSE if self._inside else OPEN) :]
            (self.bodies if self._inside else shown).append(before)
            self._inside = not self._inside
        if not self._inside:
            keep = _tag_start_length(self._held)
            shown.append(self._held[: len(self._held) - keep])
            self._held = self._held[len(self._held) - keep :]
        return "".join(shown)

    def finish(self) -> str:
        """The rest of the text. A last call that lacks its end tag counts: models stop right before it."""
        rest, self._held = self._held, ""
        if not self._inside:
            return rest
        self._inside = False
        self.bodies.append(rest)
        return ""


class TaggedReplyAssembly:
    """A `ReplyAssembly` whose calls stand in the text; native calls that come all the same are kept."""

    def __init__(self, limits: ReplyLimits) -> None:
        self._limits = limits
        self._assembly = ReplyAssembly(limits)
        self._reader = TagReader()
        self._shown: list[str] = []

    @property
    def finish_reason(self) -> str | None:
        return self._assembly.finish_reason

    def add(self, chunk: Mapping[str, Any]) -> str:
        return self._show(self._reader.feed(self._assembly.add(chunk)))

    def finish(self) -> tuple[str, ModelReply]:
        rest, reply = self._assembly.finish()
        rest = self._show(self._reader.feed(rest) + self._reader.finish())
        bodies = self._reader.bodies
        if bodies and reply.finish_reason == "length":
            raise ModelTruncatedCallError("the length limit fell inside a tool call")
        calls = (*reply.tool_calls, *(_parsed(body.strip()) for body in bodies))
        if len(calls) > self._limits.max_tool_calls:
            raise ModelReplyTooLargeError(f"more than {self._limits.max_tool_calls} tool calls")
        if any(len(body.encode()) > self._limits.max_arguments_bytes for body in bodies):
            raise ModelReplyTooLargeError(f"more than {self._limits.max_arguments_bytes} bytes of arguments in a call")
        return rest, replace(reply, text="".join(self._shown), tool_calls=calls)

    def _show(self, text: str) -> str:
        self._shown.append(text)
        return text


def _parsed(body: str) -> ToolCall:
    call_id = new_call_id()
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ToolCall(call_id, UNREADABLE, body)
    if not isinstance(said, dict) or not isinstance(name := said.get("name"), str):
        return ToolCall(call_id, UNREADABLE, body)
    arguments = said.get("arguments", {})
    return ToolCall(call_id, name, arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode())


def _tag_start_length(text: str) -> int:
    """How many characters at the end may be the start of a tag."""
    longest = min(len(text), len(OPEN) - 1)
    return next((size for size in range(longest, 0, -1) if OPEN.startswith(text[-size:])), 0)


def _described(tool: ToolSpec) -> str:
    return orjson.dumps(
        {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    ).decode()


def _plain(message: Message) -> Message:
    if message.role == "tool":
        return Message("user", f"<tool_result>\n{message.content}\n</tool_result>")
    if message.tool_calls:
        return Message(message.role, "\n".join(filter(None, [message.content, *map(_as_tag, message.tool_calls)])))
    return message


def _as_tag(call: ToolCall) -> str:
    try:
        arguments = orjson.loads(call.arguments_json)
    except orjson.JSONDecodeError:
        arguments = call.arguments_json
    return f"{OPEN}{orjson.dumps({'name': call.name, 'arguments': arguments}).decode()}{CLOSE}"
