"""What agents may use."""

from typing import Literal

from pydantic import BaseModel

from shared.contracts.tools import ToolEffect

ModelKind = Literal["chat", "embedding", "rerank"]


class ModelView(BaseModel):
    """A model. `problem` says why it can't be used now."""

    name: str
    kind: ModelKind
    model: str
    default: bool
    usable: bool
    problem: str | None


class ToolView(BaseModel):
    """A tool. `problem` says why it can't be used now.

    `effect` says what calling it twice does, and so what happens to a call whose outcome is lost: `read` and `keyed` (which comes with an
    idempotency key) are called again, `once` never is.
    """

    name: str
    description: str
    effect: ToolEffect
    usable: bool
    problem: str | None
