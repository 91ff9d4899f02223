"""Runs and their journals."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, JsonValue

from services.gateway.schemas.text import Prompt

Outcome = Literal["done", "failed"]


class Usage(BaseModel):
    """Tokens, as the model counted them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0


class ErrorView(BaseModel):
    """Why something failed."""

    code: str
    message: str


class Run(BaseModel):
    """One answer being worked on, or done. `step` counts the think steps begun, `position` the runs of its session that go before it."""

    id: UUID
    session_id: UUID
    state: Literal["IDLE", "PLANNING", "THINKING", "EXECUTING", "FINISHED", "ERROR"]
    reason: Literal["completed", "step_limit", "cancelled", "budget", "error"] | None
    step: int
    error: ErrorView | None
    usage: Usage
    position: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class Decider(BaseModel):
    """The API key that a decision came with."""

    id: UUID
    name: str


class Resolution(BaseModel):
    """What a user said of a step whose outcome was unknown."""

    outcome: Outcome
    result: str | None
    by: Decider
    at: datetime


class StepResolve(BaseModel):
    """What became of a call whose outcome is unknown. The model is told in later turns, with the result if there is one."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"outcome": "done", "result": "Booked as number 17."}]}
    )

    outcome: Outcome
    result: Prompt | None = None


class RunStep(BaseModel):
    """An entry of a run's journal: the model was asked, or a tool was called. `n` counts entries, `step` think steps.

    A call that must not be made twice is `started` before it is made. It is `unknown` when nobody can say whether it took effect, until a
    user does: then it is what the user said, and `resolution` holds the decision.
    """

    n: int
    step: int
    kind: Literal["think", "execute"]
    state: Literal["started", "done", "failed", "unknown"]
    message_id: UUID
    tool_name: str | None
    tool_call_id: str | None
    arguments: JsonValue
    error: ErrorView | None
    usage: Usage | None
    resolution: Resolution | None
    started_at: datetime
    finished_at: datetime | None
