"""The two event tables, as streams read them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from services.gateway.subscriptions import EventsUnavailable
from shared.contracts.hints import EventFrame
from shared.db.pool import DATABASE_TROUBLE, Pool
from shared.db.queries import load_queries
from shared.events import StreamField, to_frames

SQL = load_queries(Path(__file__).with_name("events.sql"))

_PAGE_BYTES = 1024 * 1024


class StoredEvents:
    """The events of sessions or of knowledge bases, by the name of their id in an event."""

    def __init__(self, pool: Pool, field: StreamField) -> None:
        self._pool = pool
        self._field = field
        noun = field.removesuffix("_id")
        self._position = SQL[f"{noun}_position"]
        self._positions = SQL[f"{noun}_positions"]
        self._events = SQL[f"{noun}_events"]

    async def position(self, tenant_id: UUID, stream_id: UUID) -> int | None:
        with _trouble_named():
            seq: int | None = await self._pool.fetchval(self._position, tenant_id, stream_id)
            return seq

    async def positions(self, stream_ids: Collection[UUID]) -> Mapping[UUID, int]:
        with _trouble_named():
            rows = await self._pool.fetch(self._positions, list(stream_ids))
            return {row["id"]: row["last_seq"] for row in rows}

    async def read(self, tenant_id: UUID, stream_id: UUID, after: int, limit: int) -> Sequence[EventFrame]:
        with _trouble_named():
            rows = await self._pool.fetch(self._events, tenant_id, stream_id, after, limit, _PAGE_BYTES)
            return to_frames(rows, self._field, stream_id)


@contextmanager
def _trouble_named() -> Iterator[None]:
    try:
        yield
    except DATABASE_TROUBLE as error:
        raise EventsUnavailable from error
