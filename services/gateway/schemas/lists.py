"""Lists: every list has the same form."""

from typing import Annotated, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel, Field

ItemT = TypeVar("ItemT")

Limit = Annotated[int, Query(ge=1, le=200, description="Items of a page.")]
Cursor = Annotated[
    str | None, Query(max_length=100, description="`next_cursor` of the page before. None: from the start.")
]


class ItemList(BaseModel, Generic[ItemT]):
    """A page. `next_cursor` is null on the last one."""

    items: list[ItemT]
    next_cursor: str | None = Field(default=None)
