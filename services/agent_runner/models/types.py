"""What the runner says to a chat model and hears from it, whatever the provider's dialect. No I/O here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call the model asks for. `arguments_json` is what it wrote, which need not be JSON nor an object."""

    id: str
    name: str
    arguments_json: str


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model is told of it; `parameters` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation. `tool_calls` goes with role assistant, `tool_call_id` with role tool."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Sampling options; None leaves the choice to the provider. `extra` is sent as it is (`{"seed": 7}`)."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One question to a model; `model` is its name in the registry, None means the default."""

    messages: tuple[Message, ...]
    model: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    options: ModelOptions = ModelOptions()


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call, as the provider counted them."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int

    @classmethod
    def total(cls, usages: "Sequence[Usage]") -> "Usage | None":
        """The sum; None of nothing."""
        if not usages:
            return None
        return cls(
            sum(usage.prompt_tokens for usage in usages),
            sum(usage.completion_tokens for usage in usages),
            sum(usage.total_tokens for usage in usages),
        )


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the answer's text; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A complete reply: its text equals the concatenated deltas.

    `model` is what the endpoint says it ran, `usage` None when it didn't count, `reasoning` what a thinking model
    thought (kept, never shown as text).
    """

    text: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: str
    model: str
    usage: Usage | None = None
    reasoning: str = ""


StreamItem = TextDelta | ModelReply
