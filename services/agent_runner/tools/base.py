"""What a tool is."""

from typing import Any, Protocol

from services.agent_runner.models.types import ToolSpec
from services.agent_runner.steps import Agent, ToolContext, ToolResult
from shared.contracts.tools import ToolEffect
from shared.errors import CodedError


class ToolFailed(CodedError):
    """A tool could not do what was asked; the model is told and decides what to do."""

    code = "tool_failed"


class OutcomeLost(CodedError):
    """The call was sent and its answer never came: it may have taken effect or not."""

    code = "outcome_lost"


class Tool(Protocol):
    """A tool: how it is described to the model for an agent, and what it does."""

    @property
    def name(self) -> str: ...

    @property
    def effect(self) -> ToolEffect: ...

    @property
    def timeout(self) -> float | None:
        """Seconds that a call may take; None for what the settings say."""

    def spec(self, agent: Agent) -> ToolSpec | None:
        """The description for this agent, or None when the agent has no use for it."""

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Does it. Raises ToolFailed when it was not done, OutcomeLost when nobody knows, and ValidationError for wrong arguments."""
