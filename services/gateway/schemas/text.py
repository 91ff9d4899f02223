"""Text that can be stored and shown: PostgreSQL takes no NUL, UTF-8 no lone surrogate."""

import math
from typing import Annotated, Any

from pydantic import AfterValidator, Field, JsonValue, StringConstraints
from pydantic_core import PydanticCustomError

_MAX_INTEGER = 2**63 - 1
_MAX_SCALAR_TEXT = 1000


def storable(value: str) -> str:
    if "\0" in value:
        raise PydanticCustomError("nul_character", "must not hold NUL characters")
    return value


# What the validator checks, as a pattern, so that the OpenAPI document says so too.
_WITHOUT_NUL: dict[str, Any] = {"pattern": r"^[^\u0000]*$"}

Name = Annotated[
    str,
    StringConstraints(min_length=1, max_length=200, pattern=r"\S"),
    AfterValidator(storable),
    Field(json_schema_extra={"pattern": r"^[^\u0000]*[^\s\u0000][^\u0000]*$"}),
]
Title = Annotated[str, Field(max_length=200, json_schema_extra=_WITHOUT_NUL), AfterValidator(storable)]
Description = Annotated[str, Field(max_length=2000, json_schema_extra=_WITHOUT_NUL), AfterValidator(storable)]
Prompt = Annotated[str, Field(max_length=100_000, json_schema_extra=_WITHOUT_NUL), AfterValidator(storable)]
Reference = Annotated[
    str, Field(min_length=1, max_length=200, json_schema_extra=_WITHOUT_NUL), AfterValidator(storable)
]


def check_scalar(value: JsonValue) -> JsonValue:
    """A JSON scalar that can be stored and sent on; raises PydanticCustomError."""
    if isinstance(value, str):
        if len(value) > _MAX_SCALAR_TEXT:
            raise PydanticCustomError("string_too_long", "must have at most 1000 characters")
        return storable(value)
    if isinstance(value, int | float):
        if not math.isfinite(value) or (isinstance(value, int) and abs(value) > _MAX_INTEGER):
            raise PydanticCustomError("number_out_of_range", "must be a number of at most 64 bits")
        return value
    if value is None:
        return value
    raise PydanticCustomError("scalar_type", "must be a text, a number, true, false or null")
