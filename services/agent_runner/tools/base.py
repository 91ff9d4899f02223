"""What a tool is."""

from typing import Any, Protocol

from services.agent_runner.models.types import ToolSpec
from services.agent_runner.steps import Agent, ToolContext, ToolEffect, ToolResult
from shared.errors import CodedError


class ToolFailed(CodedError):
    """A tool could not do what was asked; the model is told and decides what to do."""

    code = "tool_failed"


class Tool(Protocol):
    """A tool: how it is described to the model for an agent, and what it does."""

    name: str
    effect: ToolEffect

    def spec(self, agent: Agent) -> ToolSpec | None:
        """The description for this agent, or None when the agent has no use for it."""

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Does it. Raises ToolFailed, or pydantic's ValidationError for wrong arguments."""
