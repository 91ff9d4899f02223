"""The upkeep of indexes goes on after any error, and says which of them nobody but a person mends."""

import asyncio
from collections.abc import MutableMapping
from typing import Any, cast
from uuid import UUID

import asyncpg
import pytest
from structlog.testing import capture_logs

from services.ingestion.settings import VectorIndexSettings
from services.ingestion.vector_indexes import SQL, VectorIndexes
from shared.db.pool import Pool


class FailingPool:
    """Raises an error with each statement whose text holds `at`, and tells when there was another sweep after the first."""

    def __init__(self, error: Exception, at: str) -> None:
        self.error, self.at = error, at
        self.went_on = asyncio.Event()
        self.failures = 0

    async def fetch(self, statement: str, *arguments: object, **options: object) -> list[dict[str, Any]]:
        if self.failures:
            self.went_on.set()
        self._run(statement)
        return [{"knowledge_base_id": UUID(int=1), "generation": 1}] if statement == SQL["due_vector_indexes"] else []

    async def execute(self, statement: str, *arguments: object, **options: object) -> str:
        self._run(statement)
        return "UPDATE 0"

    async def fetchval(self, statement: str, *arguments: object, **options: object) -> None:
        self._run(statement)

    def _run(self, statement: str) -> None:
        if self.at in statement:
            self.failures += 1
            raise self.error


async def logged_for(error: Exception, at: str = "") -> MutableMapping[str, Any]:
    """The event of a sweep that failed like this, after which there was another one."""
    pool = FailingPool(error, at)
    with capture_logs() as logs:
        upkeep = asyncio.create_task(VectorIndexes(cast(Pool, pool), VectorIndexSettings(every=0.001)).run())
        async with asyncio.timeout(5):
            await pool.went_on.wait()
        upkeep.cancel()
        await asyncio.gather(upkeep, return_exceptions=True)
    return logs[0]


@pytest.mark.parametrize(
    "error", [ConnectionResetError(), asyncpg.DeadlockDetectedError(), asyncpg.LockNotAvailableError()]
)
async def test_a_database_that_is_away_is_a_warning(error: Exception) -> None:
    found = await logged_for(error)
    assert (found["event"], found["log_level"]) == ("vector_indexes.not_swept", "warning")


@pytest.mark.parametrize(
    "error", [asyncpg.InsufficientPrivilegeError(), asyncpg.UndefinedTableError(), KeyError("relation")]
)
async def test_a_missing_right_or_a_mistake_of_ours_is_an_error(error: Exception) -> None:
    found = await logged_for(error)
    assert (found["event"], found["log_level"]) == ("vector_indexes.failed", "error")
    assert found["exc_info"]


async def test_a_missing_right_to_build_is_no_reason_to_postpone() -> None:
    found = await logged_for(asyncpg.InsufficientPrivilegeError(), at="build_vector_index(")
    assert found["event"] == "vector_indexes.failed"
