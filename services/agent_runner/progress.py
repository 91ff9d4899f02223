"""Where a run stands: the messages that are committed, and what follows from them."""

from dataclasses import dataclass, field
from uuid import UUID

from services.agent_runner.models.types import ModelReply, ToolCall, Usage
from services.agent_runner.steps import Agent, StoredMessage, ToolResult


@dataclass(slots=True)
class RunProgress:
    """A run's agent, conversation and counters. `messages` holds history and the run's own messages in reading order."""

    tenant_id: UUID
    session_id: UUID
    run_id: UUID
    agent: Agent
    messages: list[StoredMessage]
    usage: dict[str, int]
    step: int = field(init=False)  # think steps committed
    announced_step: int | None = field(default=None, init=False)  # the think step that clients have been told of

    def __post_init__(self) -> None:
        self.step = sum(message.role == "assistant" for message in self.own_messages)

    @property
    def own_messages(self) -> list[StoredMessage]:
        return [message for message in self.messages if message.run_id == self.run_id]

    @property
    def next_n(self) -> int:
        """The journal number of the next step: every committed message but the user's is one."""
        return 1 + sum(message.role != "user" for message in self.own_messages)

    @property
    def open_calls(self) -> list[ToolCall]:
        """The calls of the newest reply that have no result yet."""
        own = self.own_messages
        for position in range(len(own) - 1, -1, -1):
            if own[position].role == "assistant":
                answered = {message.tool_call_id for message in own[position + 1 :]}
                return [call for call in own[position].tool_calls if call.id not in answered]
        return []

    def add_usage(self, usage: Usage | None) -> None:
        """Counts a model call's tokens."""
        if usage is not None:
            self.usage = {
                "prompt_tokens": self.usage.get("prompt_tokens", 0) + usage.prompt_tokens,
                "completion_tokens": self.usage.get("completion_tokens", 0) + usage.completion_tokens,
                "total_tokens": self.usage.get("total_tokens", 0) + usage.total_tokens,
            }

    def add_reply(self, reply: ModelReply) -> None:
        """A reply with tool calls was committed."""
        self.step += 1
        self.messages.append(StoredMessage(self.run_id, "assistant", reply.text, reply.tool_calls))

    def add_result(self, call: ToolCall, result: ToolResult, *, announced_step: int | None) -> None:
        """A tool's result was committed."""
        self.announced_step = announced_step
        self.messages.append(
            StoredMessage(self.run_id, "tool", result.content, tool_call_id=call.id, metadata=result.metadata)
        )
