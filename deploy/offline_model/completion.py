"""The offline model's answers in the OpenAI chat protocol."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from itertools import islice
from typing import Any
from uuid import uuid4

from deploy.offline_model import MODEL_ID
from deploy.offline_model.answering import Call, Say, decide
from deploy.offline_model.conversation import BadRequestError, read_conversation
from deploy.offline_model.terms import token_count, tokens

_TOKENS_A_PIECE = 4


class Completion:
    """One answer to a request; raises BadRequestError for what is none."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._decision = decide(read_conversation(body))
        self._id = f"chatcmpl-{uuid4().hex}"
        self._created = int(time.time())
        self._prompt_tokens = token_count(json.dumps(body.get("messages"), ensure_ascii=False))
        said = tokens(self._decision.text) if isinstance(self._decision, Say) else []
        limit = _max_tokens(body)
        self._said = said if limit is None else said[:limit]
        self._cut = len(self._said) < len(said)

    def whole(self) -> dict[str, Any]:
        """A `chat.completion` object."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._said) or None}
        if isinstance(self._decision, Call):
            message["tool_calls"] = [self._tool_call(self._decision)]
        choice = {"index": 0, "message": message, "finish_reason": self._finish_reason}
        return {**self._envelope("chat.completion"), "choices": [choice], "usage": self._usage}

    async def events(self, token_seconds: float, *, include_usage: bool) -> AsyncIterator[bytes]:
        """The events of a stream, `token_seconds` apart for every token in them."""
        yield self._event({"role": "assistant", "content": ""})
        if isinstance(self._decision, Call):
            yield self._event({"tool_calls": [{"index": 0, **self._tool_call(self._decision)}]})
        said = iter(self._said)
        while piece := list(islice(said, _TOKENS_A_PIECE)):
            if token_seconds:
                await asyncio.sleep(token_seconds * len(piece))
            yield self._event({"content": "".join(piece)})
        yield self._event({}, self._finish_reason)
        if include_usage:
            yield _sse({**self._envelope("chat.completion.chunk"), "choices": [], "usage": self._usage})
        yield b"data: [DONE]\n\n"

    @property
    def _finish_reason(self) -> str:
        if isinstance(self._decision, Call):
            return "tool_calls"
        return "length" if self._cut else "stop"

    @property
    def _usage(self) -> dict[str, int]:
        said = len(self._said)
        if isinstance(self._decision, Call):
            said = token_count(json.dumps(self._tool_call(self._decision), ensure_ascii=False))
        prompt = self._prompt_tokens
        return {"prompt_tokens": prompt, "completion_tokens": said, "total_tokens": prompt + said}

    def _tool_call(self, call: Call) -> dict[str, Any]:
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        return {
            "id": f"call_{self._id[-24:]}",
            "type": "function",
            "function": {"name": call.tool, "arguments": arguments},
        }

    def _envelope(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": MODEL_ID}

    def _event(self, delta: Mapping[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return _sse({**self._envelope("chat.completion.chunk"), "choices": [choice]})


def _sse(value: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def _max_tokens(body: Mapping[str, Any]) -> int | None:
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    if limit is None:
        return None
    if not isinstance(limit, int) or limit < 1:
        raise BadRequestError("max_tokens must be a positive integer")
    return limit
