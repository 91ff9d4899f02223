"""Hints: what has just been committed. A reader who misses one finds the same in the table a second later."""

from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field, TypeAdapter

from shared.contracts.base import Contract


class EventFrame(Contract):
    """One committed event. `data` is the JSON text that clients get, byte for byte."""

    seq: int
    type: str
    data: str


class StreamAdvanced(Contract):
    """Events of a session or a knowledge base were committed. `events` is empty when they are too large to send along."""

    kind: Literal["stream.advanced"] = "stream.advanced"
    stream_id: UUID
    last_seq: int
    events: tuple[EventFrame, ...] = ()


class MessageDelta(Contract):
    """Text that the model has just produced for a message that is not complete yet. `offset` counts characters of the message before it."""

    kind: Literal["message.delta"] = "message.delta"
    stream_id: UUID
    run_id: UUID | None = None  # the first release left it out
    message_id: UUID
    offset: int
    text: str


class RunCancelled(Contract):
    """A run is to end, or was ended from outside: whoever executes it should end it now rather than find out at its next write."""

    kind: Literal["run.cancelled"] = "run.cancelled"
    run_id: UUID


Hint = Annotated[StreamAdvanced | MessageDelta | RunCancelled, Field(discriminator="kind")]
HINT: TypeAdapter[StreamAdvanced | MessageDelta | RunCancelled] = TypeAdapter(Hint)
