"""Committed events as the JSON text that clients get. Live delivery and replay use the same function, so they send the same bytes."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal
from uuid import UUID

import asyncpg

from shared.contracts.hints import EventFrame
from shared.json_text import to_json

# Line ends to some clients of event streams, though not to the standard; JSON takes them escaped as well.
_LINE_ENDS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}

StreamField = Literal["session_id", "knowledge_base_id"]


def to_frame(row: asyncpg.Record | Mapping[str, Any], field: StreamField, stream_id: UUID) -> EventFrame:
    """An event row (seq, type, payload as JSON text, created_at) as a frame: the payload's fields behind seq, stream id, type and time."""
    head = to_json({"seq": row["seq"], field: stream_id, "type": row["type"], "created_at": row["created_at"]})
    fields = row["payload"].strip()[1:].translate(_LINE_ENDS)
    return EventFrame(seq=row["seq"], type=row["type"], data=f"{head[:-1]},{fields}" if fields != "}" else head)


def to_frames(rows: Iterable[asyncpg.Record], field: StreamField, stream_id: UUID) -> list[EventFrame]:
    """Event rows, in their order, as frames."""
    return [to_frame(row, field, stream_id) for row in rows]
