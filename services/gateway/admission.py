"""Admission: how much may be unfinished, of a tenant and of all. What is accepted will be finished, so what can't be is refused first."""

import time
from dataclasses import dataclass
from uuid import UUID

from services.gateway.refusals import Refusal
from services.gateway.settings import LimitSettings
from services.gateway.store.admission import Kind, Unfinished, count_unfinished
from shared.db.pool import AnyConnection

_RETRY_SECONDS = 5
# While there is more room than all gateways together fill in a second, a count is used for a second.
_SAFE_ROOM = 2_000
_COUNT_HOLDS_SECONDS = 1.0
_MAX_REMEMBERED = 10_000


@dataclass(slots=True)
class _Room:
    """How much more was welcome, and until when that may be believed."""

    left: int
    until: float


class Admission:
    """Refuses new work of tenants that have too much unfinished, and of everybody when the system has."""

    def __init__(self, limits: LimitSettings) -> None:
        self._limits = {
            "run": Unfinished(limits.runs_per_tenant, limits.runs),
            "document": Unfinished(limits.documents_per_tenant, limits.documents),
        }
        self._rooms: dict[tuple[Kind, UUID], _Room] = {}

    async def require_room(self, connection: AnyConnection, tenant_id: UUID, kind: Kind, amount: int = 1) -> None:
        """Takes room for `amount` more. Raises Refusal with a time to wait."""
        room = self._rooms.get((kind, tenant_id))
        if room is None or room.left < _SAFE_ROOM or time.monotonic() >= room.until:
            room = await self._look(connection, tenant_id, kind, amount)
        room.left -= amount

    async def documents_welcome(self, connection: AnyConnection, tenant_id: UUID, wanted: int) -> int:
        """How many of `wanted` documents may be queued now. Raises Refusal when none may."""
        await self._look(connection, tenant_id, "document", 1)
        return min(wanted, self._rooms["document", tenant_id].left)

    async def _look(self, connection: AnyConnection, tenant_id: UUID, kind: Kind, amount: int) -> _Room:
        count, limit = await count_unfinished(connection, tenant_id, kind), self._limits[kind]
        if count.of_tenant + amount > limit.of_tenant:
            raise _too_many(kind, limit.of_tenant)
        if count.of_system + amount > limit.of_system:
            raise Refusal("system_full", "The system has too much unfinished work.", retry_after=_RETRY_SECONDS)
        if len(self._rooms) >= _MAX_REMEMBERED:
            self._rooms.clear()
        left = min(limit.of_tenant - count.of_tenant, limit.of_system - count.of_system)
        room = self._rooms[kind, tenant_id] = _Room(left, time.monotonic() + _COUNT_HOLDS_SECONDS)
        return room


def _too_many(kind: Kind, limit: int) -> Refusal:
    if kind == "run":
        return Refusal("too_many_runs", f"At most {limit:,} runs may be unfinished.", retry_after=_RETRY_SECONDS)
    return Refusal("too_many_documents", f"At most {limit:,} documents may be unfinished.", retry_after=_RETRY_SECONDS)
