"""Admission: a tenant may have so many unfinished runs, counted in the database so that all replicas count together."""

import time
from uuid import UUID

from services.gateway.refusals import Refusal
from services.gateway.store.runs import count_unfinished_runs
from shared.db.pool import AnyConnection

_COUNT_HOLDS_SECONDS = 1.0
_MAX_REMEMBERED = 10_000


class Admission:
    """Refuses new runs of tenants that have too many; a count is used for a second."""

    def __init__(self, runs_per_tenant: int) -> None:
        self._limit = runs_per_tenant
        self._counts: dict[UUID, tuple[int, float]] = {}

    async def require_room(self, connection: AnyConnection, tenant_id: UUID) -> None:
        """Raises Refusal with a time to wait."""
        count, until = self._counts.get(tenant_id, (0, 0.0))
        now = time.monotonic()
        if now >= until:
            count = await count_unfinished_runs(connection, tenant_id, self._limit)
            until = now + _COUNT_HOLDS_SECONDS
            if len(self._counts) >= _MAX_REMEMBERED:
                self._counts.clear()
        if count >= self._limit:
            raise Refusal("too_many_runs", f"At most {self._limit:,} runs may be unfinished.", retry_after=5)
        self._counts[tenant_id] = (count + 1, until)  # as if it will be accepted
