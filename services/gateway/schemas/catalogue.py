"""What agents may use."""

from typing import Literal

from pydantic import BaseModel


class ModelView(BaseModel):
    """A model. `problem` says why it can't be used now."""

    name: str
    kind: Literal["chat", "embedding"]
    model: str
    default: bool
    usable: bool
    problem: str | None


class ToolView(BaseModel):
    """A tool. `problem` says why it can't be used now."""

    name: str
    description: str
    usable: bool
    problem: str | None
