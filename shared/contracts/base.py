"""What every message has in common. Commands are imperative, hints say what has happened, questions ask."""

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Contract(BaseModel):
    """A message. Unknown fields are ignored, so that a newer sender can talk to an older receiver; an unknown schema version is refused."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: Literal[1] = 1
