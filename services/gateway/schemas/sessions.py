"""Sessions and messages."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, StringConstraints

from services.gateway.schemas.runs import Run, Usage
from services.gateway.schemas.text import Title, storable

MAX_CONTENT = 1024 * 1024

RunState = Literal["IDLE", "PLANNING", "THINKING", "EXECUTING", "FINISHED", "ERROR"]


class SessionCreate(BaseModel):
    """A new session with an agent."""

    model_config = ConfigDict(extra="forbid")

    agent_id: UUID
    title: Title = ""


class SessionPatch(BaseModel):
    """A new title."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"title": "Orders"}]})

    title: Title


class Session(BaseModel):
    """A session. `last_seq` is the id of its newest event."""

    id: UUID
    agent_id: UUID
    title: str
    state: RunState
    last_seq: int
    created_at: datetime
    updated_at: datetime


Content = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_CONTENT, pattern=r"\S"),
    AfterValidator(storable),
    Field(json_schema_extra={"pattern": r"^[^\u0000]*[^\s\u0000][^\u0000]*$"}),
]


class MessageCreate(BaseModel):
    """What the user says."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"content": "Which table holds orders?"}]}
    )

    content: Content
    when_busy: Literal["enqueue", "reject", "interrupt"] = Field(
        default="enqueue",
        description=(
            "While a run of the session is unfinished: wait for it, refuse with 409 `session_busy`, or cancel what is unfinished."
        ),
    )


class Message(BaseModel):
    """A complete message."""

    id: UUID
    session_id: UUID
    run_id: UUID | None
    seq: int
    role: Literal["user", "assistant", "tool"]
    content: str
    tool_calls: list[dict[str, JsonValue]]
    tool_call_id: str | None
    tool_name: str | None
    citations: list[dict[str, JsonValue]]
    usage: Usage | None
    model: str | None
    metadata: dict[str, Any]
    created_at: datetime


class AcceptedMessage(BaseModel):
    """The stored message and its run. Listening after `last_seq` misses nothing of what follows."""

    message: Message
    run: Run
    last_seq: int
