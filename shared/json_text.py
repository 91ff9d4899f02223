"""JSON text for columns and clients."""

from typing import Any
from uuid import UUID

import orjson


def to_json(value: Any) -> str:
    """Compact JSON. Takes what orjson takes, and asyncpg's UUIDs, which are a subclass that orjson doesn't know.

    Raises TypeError for anything else.
    """
    return orjson.dumps(value, default=_uuid).decode()


def _uuid(value: object) -> str:
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
