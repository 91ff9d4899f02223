"""Where a run stands: the messages that are committed, and what follows from them."""

from dataclasses import dataclass, field
from uuid import UUID

from services.agent_runner.models.types import ModelReply, ToolCall, Usage
from services.agent_runner.steps import Agent, OpenCall, StoredMessage, ToolResult


@dataclass(slots=True)
class RunProgress:
    """A run's agent, conversation and counters. `messages` holds history and the run's own messages in reading order.

    `attempt` is the lease's epoch. `started` holds the calls that an earlier attempt began and that have no result: journal number to the
    id of the message that the result is to have.
    """

    tenant_id: UUID
    session_id: UUID
    run_id: UUID
    agent: Agent
    messages: list[StoredMessage]
    usage: dict[str, int]
    attempt: int = 1
    started: dict[int, UUID] = field(default_factory=dict)
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
    def open_calls(self) -> list[OpenCall]:
        """The calls of the newest reply that have no result yet; results are committed in the order of the calls."""
        results = 0
        for message in reversed(self.own_messages):
            if message.role == "assistant":
                first = self.next_n
                return [
                    OpenCall(call, n, self.step, results + 1 + n - first, self.started.get(n))
                    for n, call in enumerate(message.tool_calls[results:], start=first)
                ]
            results += message.role == "tool"
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
