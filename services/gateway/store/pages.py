"""A page of a keyset list."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

import asyncpg

KeyT = TypeVar("KeyT")


@dataclass(frozen=True, slots=True)
class Page(Generic[KeyT]):
    """Items as JSON text, and the key of the last one when more follow."""

    items: Sequence[str]
    last_key: KeyT | None

    @classmethod
    def of(cls, rows: Sequence[asyncpg.Record], key: str, limit: int) -> Self:
        """From rows with a key column and `body`, of which one more than `limit` was asked for."""
        shown = rows[:limit]
        return cls([row["body"] for row in shown], shown[-1][key] if len(rows) > limit else None)
