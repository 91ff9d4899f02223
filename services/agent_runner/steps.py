"""The vocabulary of a run: what it knows, what it decides, what comes out of a step. Data only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from services.agent_runner.models.types import ModelOptions, ModelReply, ToolCall, Usage
from shared.contracts.agent_knowledge import AgentKnowledge
from shared.errors import ErrorInfo

MAX_HITS_A_CALL = 10


@dataclass(frozen=True, slots=True)
class GrantedKnowledgeBase:
    """A knowledge base that the agent may search, as the model is told of it."""

    id: UUID
    name: str
    description: str


@dataclass(frozen=True, slots=True)
class Agent:
    """The agent's settings at the moment that its run was claimed."""

    name: str
    system_prompt: str
    model: str
    tools: tuple[str, ...]
    options: ModelOptions
    max_steps: int
    knowledge_bases: tuple[GrantedKnowledgeBase, ...]
    knowledge: AgentKnowledge = field(default_factory=AgentKnowledge)


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message of the session; `run_id` tells this run's own messages from history."""

    run_id: UUID | None
    role: Literal["user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """The model answered: the run is finished."""


@dataclass(frozen=True, slots=True)
class CallTools:
    """The model wants tools: execute those of its calls that have no result yet."""

    calls: tuple[ToolCall, ...]


Decision = Answer | CallTools


def decide(reply: ModelReply) -> Decision:
    """What a reply asks for."""
    return CallTools(reply.tool_calls) if reply.tool_calls else Answer()


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call that has no result yet. `n` is its journal number, `step` its think step and `ordinal` its place in that step's reply, from 1;
    `started` is the id of its result's message when the call was begun before, by a process that is gone."""

    call: ToolCall
    n: int
    step: int
    ordinal: int
    started: UUID | None = None


@dataclass(frozen=True, slots=True)
class ToolContext:
    """On whose behalf a tool runs. Grants follow from run_id, never from what the model wrote. `hits_before` numbers citations on.

    `idempotency_key` is the same whenever this very call is made again; `attempt` is the lease's epoch. `conversation` is what the session
    holds so far, in reading order. A tool that asks a model notes in `usages` what that took, whatever becomes of the call.
    """

    tenant_id: UUID
    run_id: UUID
    session_id: UUID
    hits_before: int
    idempotency_key: str
    attempt: int
    agent: Agent
    conversation: Sequence[StoredMessage] = ()
    usages: list[Usage] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool returned: text for the model, and facts about it that the answer's citations need (`metadata`).

    `uncertain`: nobody knows whether the call took effect, and it must not be made again; `error` says why.
    """

    content: str
    metadata: dict[str, Any] = field(default_factory=dict)
    error: ErrorInfo | None = None
    uncertain: bool = False
