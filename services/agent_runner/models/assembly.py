"""A reply put together from the chunks of its stream, whatever the provider's habits."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard
from uuid import uuid4

import orjson

from services.agent_runner.models.errors import (
    ModelBadResponseError,
    ModelReplyTooLargeError,
    ModelTruncatedCallError,
    ModelUnavailableError,
)
from services.agent_runner.models.types import ModelReply, ToolCall, Usage

# Reasons by which providers say that they failed, not that the model is done (DeepSeek, GLM, OpenRouter).
_MAX_TOKENS = 2**40  # more is no count but nonsense, and sums must stay within 64 bits
_MAX_NAME_CHARS = 200
_FAILURES = frozenset({"insufficient_system_resource", "network_error", "error"})
_MAX_ID_CHARS = 256


@dataclass(frozen=True, slots=True)
class ReplyLimits:
    """What is accepted of one reply, in bytes of UTF-8 and in calls."""

    max_text_bytes: int = 1024 * 1024
    max_arguments_bytes: int = 64 * 1024
    max_tool_calls: int = 16


class _Text:
    """Pieces of text; a surrogate pair split over two pieces is joined, a lone one replaced, NUL dropped."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.size = 0
        self._half = ""

    def add(self, piece: str) -> str:
        """Returns what is new and whole."""
        piece = self._half + piece.replace("\0", "")
        self._half = ""
        if piece and "\ud800" <= piece[-1] <= "\udbff":
            piece, self._half = piece[:-1], piece[-1]
        whole = _without_surrogates(piece)
        if whole:
            self.pieces.append(whole)
            self.size += len(whole.encode())
        return whole

    def finish(self) -> str:
        """Returns what waited for its other half, replaced."""
        half, self._half = _without_surrogates(self._half), ""
        if half:
            self.pieces.append(half)
        return half

    def __str__(self) -> str:
        return "".join(self.pieces)


@dataclass(slots=True)
class _Call:
    index: int | None
    id: str = ""
    name: str = ""
    arguments: _Text = field(default_factory=_Text)


class ReplyAssembly:
    """Folds chunks (`chat.completion.chunk` objects) into one reply.

    A delta belongs to another call than the one before when its index *or* its id differs: some providers send index 0
    for every call, others no id.
    """

    def __init__(self, limits: ReplyLimits) -> None:
        self._limits = limits
        self._text = _Text()
        self._reasoning = _Text()
        self._calls: list[_Call] = []
        self._usage: Usage | None = None
        self._model = ""
        self.finish_reason: str | None = None

    def add(self, chunk: Mapping[str, Any]) -> str:
        """Take one chunk in; returns its text, "" where it has none to show."""
        if isinstance(model := chunk.get("model"), str):
            self._model = _name(model)
        self._usage = _usage(chunk.get("usage")) or self._usage
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not choices:
            return ""
        choice = choices[0]
        if not isinstance(choice, dict):
            raise ModelBadResponseError("a choice is not an object")
        if reason := choice.get("finish_reason"):
            self.finish_reason = _name(str(reason))
        message = choice.get("delta") or choice.get("message") or {}
        return self._add_message(message) if isinstance(message, dict) else ""

    def finish(self) -> tuple[str, ModelReply]:
        """The text that was still held back, and the complete reply.

        Raises ModelBadResponseError without a finish_reason, ModelUnavailableError where that says that the provider failed,
        and ModelTruncatedCallError where the length limit cut a reply with tool calls.
        """
        if self.finish_reason is None:
            raise ModelBadResponseError("the stream ended without a finish_reason")
        if self.finish_reason in _FAILURES:
            raise ModelUnavailableError(f"the provider gave up: {self.finish_reason}")
        if self.finish_reason == "length" and self._calls:
            raise ModelTruncatedCallError("the length limit fell inside a tool call")
        rest = self._text.finish()
        return rest, ModelReply(
            text=str(self._text),
            tool_calls=tuple(self._finished_calls()),
            finish_reason=self.finish_reason,
            model=self._model,
            usage=self._usage,
            reasoning=str(self._reasoning),
        )

    def _add_message(self, message: Mapping[str, Any]) -> str:
        deltas = message.get("tool_calls") or ()
        if not isinstance(deltas, list | tuple):
            raise ModelBadResponseError("tool_calls is not a list")
        for delta in deltas:
            self._add_call(delta)
        self._reasoning.add(_string(message.get("reasoning_content") or message.get("reasoning")))
        shown = self._text.add(_string(message.get("content")))
        if self._text.size + self._reasoning.size > self._limits.max_text_bytes:
            raise ModelReplyTooLargeError(f"more than {self._limits.max_text_bytes} bytes of text")
        return shown

    def _add_call(self, delta: object) -> None:
        if not isinstance(delta, dict) or not isinstance(function := delta.get("function") or {}, dict):
            raise ModelBadResponseError("a tool call is not an object")
        index, call_id, name = delta.get("index"), _string(delta.get("id")), _string(function.get("name"))
        call = self._call(index if isinstance(index, int) else None, call_id, name)
        call.id = call.id or call_id
        call.name = call.name or name
        call.arguments.add(_arguments(function.get("arguments")))
        if call.arguments.size > self._limits.max_arguments_bytes:
            raise ModelReplyTooLargeError(f"more than {self._limits.max_arguments_bytes} bytes of arguments in a call")

    def _call(self, index: int | None, call_id: str, name: str) -> _Call:
        for call in reversed(self._calls):
            if _continues(call, index, call_id, name):
                return call
        if len(self._calls) == self._limits.max_tool_calls:
            raise ModelReplyTooLargeError(f"more than {self._limits.max_tool_calls} tool calls")
        self._calls.append(_Call(index))
        return self._calls[-1]

    def _finished_calls(self) -> Iterator[ToolCall]:
        taken = set[str]()
        for call in self._calls:
            call.arguments.finish()
            call_id = _without_surrogates(call.id).replace("\0", "")
            if not call_id or call_id in taken or len(call_id) > _MAX_ID_CHARS:
                call_id = new_call_id()
            taken.add(call_id)
            yield ToolCall(call_id, _without_surrogates(call.name).replace("\0", ""), str(call.arguments))


def new_call_id() -> str:
    return f"call_{uuid4().hex}"


def _continues(call: _Call, index: int | None, call_id: str, name: str) -> bool:
    if index is not None and index != call.index:
        return False
    if call_id:
        return call_id == call.id or not call.id
    # Without index and id only a new name tells calls apart.
    return index is not None or not (name and call.name)


def _string(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ModelBadResponseError(f"a text field holds {type(value).__name__}")
    return value


def _arguments(value: object) -> str:
    # Some servers send the object itself instead of its JSON text.
    return orjson.dumps(value).decode() if isinstance(value, dict) else _string(value)


def _usage(value: object) -> Usage | None:
    if not isinstance(value, dict):
        return None
    prompt, completion = value.get("prompt_tokens"), value.get("completion_tokens")
    if not _is_count(prompt) or not _is_count(completion):
        return None
    total = value.get("total_tokens")
    return Usage(prompt, completion, total if _is_count(total) else prompt + completion)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_TOKENS


def _name(text: str) -> str:
    return _without_surrogates(text).replace("\0", "")[:_MAX_NAME_CHARS]


def _without_surrogates(text: str) -> str:
    if text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
