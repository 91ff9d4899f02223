"""The loop's ports, scripted: a model that says what it is told to, tools that return what they are told to, a commit that remembers."""

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from uuid import UUID

from services.agent_runner.models.errors import ModelError
from services.agent_runner.models.types import (
    ModelOptions,
    ModelReply,
    ModelRequest,
    StreamItem,
    TextDelta,
    ToolCall,
    ToolSpec,
    Usage,
)
from services.agent_runner.progress import RunProgress
from services.agent_runner.steps import Agent, GrantedKnowledgeBase, StoredMessage, ToolContext, ToolResult
from shared.contracts.agent_knowledge import AgentKnowledge
from shared.contracts.tools import ToolEffect
from shared.conversation import Advance
from shared.errors import LeaseLost
from shared.ids import new_id

RUN = new_id()
BASE = GrantedKnowledgeBase(new_id(), "Handbook", "How things work")


def make_agent(max_steps: int = 20, **knowledge: object) -> Agent:
    how = AgentKnowledge.model_validate(knowledge)
    return Agent("Guide", "Be brief.", "scripted", ("KnowledgeTool",), ModelOptions(), max_steps, (BASE,), how)


def make_context(
    agent: Agent | None = None, *, hits_before: int = 0, conversation: Sequence[StoredMessage] = ()
) -> ToolContext:
    """The context of a run's first call, made for the third time."""
    return ToolContext(
        new_id(), RUN, new_id(), hits_before, f"{RUN}:1:1", 3, agent or make_agent(), tuple(conversation)
    )


def make_progress(
    messages: list[StoredMessage] | None = None, max_steps: int = 20, started: dict[int, UUID] | None = None
) -> RunProgress:
    """A run at its start, or where these messages of its own, and the calls that were begun, leave it."""
    question = StoredMessage(RUN, "user", "question")
    messages = [question, *(messages or [])]
    return RunProgress(new_id(), new_id(), RUN, make_agent(max_steps), messages, {}, attempt=3, started=started or {})


def says(text: str) -> ModelReply:
    return ModelReply(text, (), "stop", "scripted", Usage(10, 5, 15))


def calls(*ids: str) -> ModelReply:
    tool_calls = tuple(ToolCall(call_id, "KnowledgeTool", '{"query": "q"}') for call_id in ids)
    return ModelReply("", tool_calls, "tool_calls", "scripted", Usage(10, 5, 15))


class FakeModel:
    """Replies in the given order; an error among them is raised."""

    def __init__(self, *replies: ModelReply | ModelError) -> None:
        self._replies = list(replies)
        self.requests: list[ModelRequest] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        self.requests.append(request)
        reply = self._replies.pop(0)
        if isinstance(reply, ModelError):
            raise reply
        for piece in re.findall(r"\s*\S{1,4}|\s+", reply.text):
            yield TextDelta(piece)
        yield reply


class FakeTools:
    """Every call returns what `result` makes of it."""

    def __init__(
        self,
        result: Callable[[ToolCall], ToolResult] = lambda call: ToolResult(f"result of {call.id}"),
        effect: ToolEffect = "read",
    ) -> None:
        self._result = result
        self._effect = effect
        self.called: list[str] = []
        self.contexts: list[ToolContext] = []

    def specs(self, agent: Agent) -> tuple[ToolSpec, ...]:
        return tuple(ToolSpec(name, "", {"type": "object"}) for name in agent.tools)

    def effect(self, agent: Agent, call: ToolCall) -> ToolEffect:
        return self._effect

    async def call(self, agent: Agent, call: ToolCall, context: ToolContext) -> ToolResult:
        self.called.append(call.id)
        self.contexts.append(context)
        return self._result(call)


class FakeCommit:
    """Remembers what was committed; raises LeaseLost at the n-th commit when told to."""

    def __init__(self, lose_at: int | None = None) -> None:
        self.advances: list[Advance] = []
        self._lose_at = lose_at

    async def __call__(self, advance: Advance) -> None:
        if len(self.advances) == self._lose_at:
            raise LeaseLost("gone")
        self.advances.append(advance)

    @property
    def shape(self) -> list[tuple[str | None, str | None, str | None]]:
        """State, kind of step, and reason of each commit."""
        return [
            (a.state, a.journal["kind"] if a.journal else None, a.ending.reason if a.ending else None)
            for a in self.advances
        ]


class FakeDeltas:
    """Collects text by message."""

    def __init__(self) -> None:
        self.texts: dict[UUID, list[str]] = {}

    def add(self, message_id: UUID, text: str) -> None:
        self.texts.setdefault(message_id, []).append(text)

    def complete(self) -> None:
        pass
