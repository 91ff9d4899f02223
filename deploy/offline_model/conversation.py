"""What a chat request asks for, read from its messages and tools with tolerance for other clients' habits."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class BadRequestError(Exception):
    """The request is not one of the chat protocol."""


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResult:
    tool: str
    content: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """`results` are those of the tools called since the last question; `earlier` the questions before it, newest last."""

    system: str
    earlier: tuple[str, ...]
    question: str
    results: tuple[ToolResult, ...]
    tools: tuple[Tool, ...]

    def tool(self, *words: str) -> Tool | None:
        """The first tool whose name contains one of the words, in any case."""
        return next((tool for tool in self.tools if any(word in tool.name.lower() for word in words)), None)


def read_conversation(body: Mapping[str, Any]) -> Conversation:
    """Raises BadRequestError."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        raise BadRequestError("messages must be a list of at least one message")
    by_role = {role: [_text(m) for m in messages if m.get("role") == role] for role in ("system", "user")}
    questions = by_role["user"] or [""]
    return Conversation(
        system="\n".join(by_role["system"]),
        earlier=tuple(questions[:-1]),
        question=questions[-1].strip(),
        results=_results(messages),
        tools=tuple(_tools(body.get("tools"))),
    )


def _results(messages: Sequence[Mapping[str, Any]]) -> tuple[ToolResult, ...]:
    names: dict[str, str] = {}
    results: list[ToolResult] = []
    for message in messages:
        match message.get("role"):
            case "user":
                results = []
            case "assistant":
                for call in message.get("tool_calls") or ():
                    names[str(call.get("id"))] = str((call.get("function") or {}).get("name", ""))
            case "tool":
                name = names.get(str(message.get("tool_call_id")), str(message.get("name", "")))
                results.append(ToolResult(name, _text(message)))
    return tuple(results)


def _tools(value: object) -> list[Tool]:
    tools: list[Tool] = []
    for entry in value if isinstance(value, list) else ():
        function = entry.get("function") if isinstance(entry, dict) else None
        if not isinstance(function, dict) or not isinstance(name := function.get("name"), str):
            raise BadRequestError("a tool must be a function with a name")
        parameters = function.get("parameters")
        described = str(function.get("description") or "")
        tools.append(Tool(name, described, parameters if isinstance(parameters, dict) else {}))
    return tools


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else "" if content is None else json.dumps(content, ensure_ascii=False)
