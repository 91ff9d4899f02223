"""What every message has in common. Commands are imperative, hints say what has happened, questions ask."""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, StrictInt, field_validator


class Contract(BaseModel):
    """A message. Unknown fields are ignored, so that a newer sender can talk to an older receiver.

    An unknown schema version is refused; old ones are read. A class that changes its meaning sends the next version, adds it to `reads`,
    and turns the bodies of old ones into the present form in a validator (mode "before").
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    reads: ClassVar[frozenset[int]] = frozenset({1})
    schema_version: StrictInt = 1

    @field_validator("schema_version")
    @classmethod
    def _is_known(cls, value: int) -> int:
        if value not in cls.reads:
            raise ValueError("unknown schema version")
        return value
