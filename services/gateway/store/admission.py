"""What admission needs to know, counted in the database so that all gateways count together: unfinished work, and requests."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from uuid import UUID

import structlog

from shared.db.pool import DATABASE_TROUBLE, AnyConnection, Pool
from shared.db.queries import load_queries

log = structlog.get_logger()

SQL = load_queries(Path(__file__).with_name("admission.sql"))

Kind = Literal["run", "document"]

_FOLD_SECONDS = 1.0
_FOLDED_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class Unfinished:
    """How much waits or works."""

    of_tenant: int
    of_system: int


async def count_unfinished(connection: AnyConnection, tenant_id: UUID, kind: Kind) -> Unfinished:
    row = await connection.fetchrow(SQL["count_unfinished"], tenant_id, kind)
    assert row is not None
    return Unfinished(row["of_tenant"], row["of_system"])


async def fold_unfinished_for_ever(pool: Pool) -> None:
    """Keeps what has to be added up short."""
    while True:
        try:
            while await pool.fetchval(SQL["fold_unfinished"], _FOLDED_AT_ONCE) == _FOLDED_AT_ONCE:
                pass
        except DATABASE_TROUBLE as error:
            log.warning("admission.not_folded", cause=type(error).__name__)
        await asyncio.sleep(_FOLD_SECONDS)


async def take_tokens(pool: Pool, tenant_id: UUID, wanted: int, per_second: float, burst: int) -> tuple[int, float]:
    """Up to `wanted` tokens from the tenant's bucket: how many were granted, and how many are left.

    A tenant that was deleted gets what it wants: nothing of it is there, and its key is about to be forgotten.
    """
    row = await pool.fetchrow(SQL["take_tokens"], tenant_id, wanted, per_second, float(burst))
    return (wanted, 0.0) if row is None else (row["granted"], row["tokens"])
