"""What is stuck: unfinished rows that nobody is responsible for, by the view of that name (migration 0009)."""

import asyncio
import random
from pathlib import Path
from typing import Final

import asyncpg
import structlog

from shared.db.pool import DATABASE_TROUBLE, Pool
from shared.db.queries import load_queries

log = structlog.get_logger()

SQL = load_queries(Path(__file__).with_name("stuck.sql"))

_EVERY_SECONDS: Final = 60.0


async def count_stuck(pool: Pool) -> dict[str, int]:
    """How many rows are stuck, by kind and reason: {"run unclaimed": 3}. Sessions are left out. Raises one of DATABASE_TROUBLE."""
    rows = await pool.fetch(SQL["count_stuck"])
    return {f"{row['kind']} {row['reason']}": row["rows"] for row in rows}


async def report_stuck_for_ever(pool: Pool, every: float = _EVERY_SECONDS) -> None:
    """Logs what is stuck once in `every` seconds, give or take a fifth, and nothing while nothing is."""
    while True:
        await asyncio.sleep(every * random.uniform(0.8, 1.2))  # noqa: S311 - not for secrets
        try:
            stuck = await count_stuck(pool)
        except (
            *DATABASE_TROUBLE,
            asyncpg.PostgresError,
        ) as error:  # not migrated yet, or not allowed: no reason to end
            log.warning("stuck.not_counted", cause=type(error).__name__)
            continue
        if stuck:
            log.warning("stuck.found", rows=stuck)
