"""Lists: every list has the same form."""

from typing import Generic, TypeVar

from pydantic import BaseModel, Field

ItemT = TypeVar("ItemT")


class ItemList(BaseModel, Generic[ItemT]):
    """A page. `next_cursor` is null on the last one."""

    items: list[ItemT]
    next_cursor: str | None = Field(default=None)
