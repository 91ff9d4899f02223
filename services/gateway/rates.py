"""The rate of requests: one token bucket a tenant, in the database, from which each gateway takes tokens in batches.

A batch is a small part of the bucket, so that what one gateway holds and doesn't use is little; together they never give more than the
bucket had.
"""

import asyncio
import math
import time
from dataclasses import dataclass, field
from uuid import UUID

from services.gateway.refusals import Refusal
from services.gateway.settings import RateSettings
from services.gateway.store.admission import take_tokens
from shared.db.pool import Pool

_BATCHES_OF_A_BUCKET = 20
_MAX_REMEMBERED = 10_000
_SHORTEST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0


@dataclass(slots=True)
class _Allowance:
    """The tokens that this gateway holds for a tenant, or until when it need not ask for any."""

    tokens: int = 0
    waiting: int = 0
    empty_until: float = 0.0
    retry_after: int = 1
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


class TenantRates:
    """Lets so many requests of a tenant through a second, over all gateways."""

    def __init__(self, pool: Pool, settings: RateSettings) -> None:
        self._pool = pool
        self._settings = settings
        self._batch = max(1, settings.burst // _BATCHES_OF_A_BUCKET)
        self._allowances: dict[UUID, _Allowance] = {}

    async def take(self, tenant_id: UUID) -> None:
        """Counts one request. Raises Refusal with a time to wait when it is one too many."""
        if self._settings.per_second == 0:
            return
        allowance = self._allowances.get(tenant_id) or self._remember(tenant_id)
        if allowance.tokens == 0:
            await self._refill(tenant_id, allowance)
        allowance.tokens -= 1

    def _remember(self, tenant_id: UUID) -> _Allowance:
        if len(self._allowances) >= _MAX_REMEMBERED:
            # Tokens of those who are quiet now are given up.
            self._allowances = {key: known for key, known in self._allowances.items() if known.waiting}
        return self._allowances.setdefault(tenant_id, _Allowance())

    async def _refill(self, tenant_id: UUID, allowance: _Allowance) -> None:
        """Returns when there is a token. Of many requests at once one asks for all."""
        allowance.waiting += 1
        try:
            async with allowance.asking:
                if allowance.tokens == 0:
                    await self._ask(tenant_id, allowance)
        finally:
            allowance.waiting -= 1

    async def _ask(self, tenant_id: UUID, allowance: _Allowance) -> None:
        if time.monotonic() < allowance.empty_until:
            raise _limited(allowance.retry_after)
        wanted = max(self._batch, allowance.waiting)
        rate, burst = self._settings.per_second, self._settings.burst
        allowance.tokens, left = await take_tokens(self._pool, tenant_id, wanted, rate, burst)
        if allowance.tokens == 0:
            pause = (1 - left) / rate
            allowance.empty_until = time.monotonic() + min(max(pause, _SHORTEST_PAUSE), _LONGEST_PAUSE)
            allowance.retry_after = max(1, math.ceil(pause))
            raise _limited(allowance.retry_after)


def _limited(retry_after: int) -> Refusal:
    return Refusal("rate_limited", "Too many requests.", retry_after=retry_after)
