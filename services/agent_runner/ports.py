"""What the loop needs from the world; adapters fit by structure and are joined in `main`."""

from collections.abc import AsyncGenerator
from typing import Protocol
from uuid import UUID

from services.agent_runner.models.types import ModelRequest, StreamItem, ToolCall, ToolSpec
from services.agent_runner.steps import Agent, ToolContext, ToolResult
from shared.contracts.tools import ToolEffect
from shared.conversation import Advance


class HandBack(Exception):
    """This process is stopping: the run goes on elsewhere, from the step that is committed last."""


class Model(Protocol):
    """Asks a model: text as it comes, at last the reply. Raises ModelError."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]: ...


class Tools(Protocol):
    """Calls tools within the agent's allow-list; what goes wrong is in the result."""

    def specs(self, agent: Agent) -> tuple[ToolSpec, ...]: ...

    def effect(self, agent: Agent, call: ToolCall) -> ToolEffect: ...

    async def call(self, agent: Agent, call: ToolCall, context: ToolContext) -> ToolResult: ...


class Commit(Protocol):
    """Commits one advance of the run, fenced. Raises LeaseLost."""

    async def __call__(self, advance: Advance) -> None: ...


class Deltas(Protocol):
    """Takes the text of a message as it comes; `complete` when there is no more of it."""

    def add(self, message_id: UUID, text: str) -> None: ...

    def complete(self) -> None: ...
