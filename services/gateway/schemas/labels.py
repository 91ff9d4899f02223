"""Labels of documents, as clients give them: what searches and lists filter by."""

import unicodedata
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from shared.contracts.questions import Day

MAX_TAGS = 32
_MAX_TAG = 64


def _cleaned(value: object) -> object:
    """In one of the ways to write it, without white space around it."""
    return unicodedata.normalize("NFC", value).strip() if isinstance(value, str) else value


def _printable(value: str) -> str:
    if not value.isprintable():
        raise PydanticCustomError("unprintable", "must not hold control characters")
    return value


def _distinct(values: list[str]) -> list[str]:
    return list(dict.fromkeys(values))


Tag = Annotated[
    str,
    BeforeValidator(_cleaned),
    AfterValidator(_printable),
    Field(min_length=1, max_length=_MAX_TAG, examples=["2024"]),
]
Tags = Annotated[list[Tag], Field(max_length=MAX_TAGS), AfterValidator(_distinct)]


class Labels(BaseModel):
    """Tags and a date of a document."""

    tags: Tags = []
    date: Day | None = None


class DocumentPatch(BaseModel):
    """Fields to change; those left out stay as they are. The tags given replace all tags; a date of null takes it away."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"tags": ["manual"], "date": "2024-12-31"}]}
    )

    # The defaults are never read: only what was given is changed.
    tags: Tags = []
    date: Day | None = None
    filename: str = Field(default="", min_length=1, max_length=255)


def split_tags(fields: Iterable[str]) -> list[str]:
    """Tags of form fields, each of which holds one or several with commas between them."""
    return [tag for text in fields for tag in text.replace("，", ",").split(",") if tag.strip()]
