"""Runs and their journals."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, JsonValue


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
    """One answer being worked on, or done. `step` counts the think steps begun."""

    id: UUID
    session_id: UUID
    state: Literal["IDLE", "PLANNING", "THINKING", "EXECUTING", "FINISHED", "ERROR"]
    reason: Literal["completed", "step_limit", "cancelled", "budget", "error"] | None
    step: int
    error: ErrorView | None
    usage: Usage
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class RunStep(BaseModel):
    """An entry of a run's journal: the model was asked, or a tool was called. `n` counts entries, `step` think steps."""

    n: int
    step: int
    kind: Literal["think", "execute"]
    state: Literal["done", "failed"]
    message_id: UUID
    tool_name: str | None
    tool_call_id: str | None
    arguments: JsonValue
    error: ErrorView | None
    usage: Usage | None
    started_at: datetime
    finished_at: datetime
