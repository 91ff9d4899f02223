"""The connection pool: JSON and vector codecs, UTC, time limits, and patience at start."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg
import orjson
import structlog
from pgvector.asyncpg import register_vector
from pydantic import BaseModel, Field

from shared.json_text import to_json

log = structlog.get_logger()

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
PooledConnection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"
AnyConnection: TypeAlias = "Connection | PooledConnection"
Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"

# What PostgreSQL being away, restarting or too busy looks like: worth another try, and nobody's bug.
DATABASE_TROUBLE = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,
    asyncpg.LockNotAvailableError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a pooled connection whose server has just gone, before the loop has seen it
)


class PoolSettings(BaseModel):
    """Sizes and time limits of a service's pool."""

    min_size: int = Field(default=1, ge=0)
    max_size: int = Field(default=10, ge=1)
    connect_timeout: float = Field(default=5.0, gt=0, description="seconds")
    acquire_timeout: float | None = Field(
        default=None, gt=0, description="seconds to wait for a free connection; None: for ever"
    )
    command_timeout: float = Field(default=30.0, gt=0, description="seconds a statement may take")
    lock_timeout: float = Field(default=10.0, gt=0, description="seconds to wait for a row lock")
    start_timeout: float = Field(default=120.0, gt=0, description="seconds to wait for the database at start")


if TYPE_CHECKING:
    _BasePool = asyncpg.Pool[asyncpg.Record]
else:  # generic in its stubs only
    _BasePool = asyncpg.Pool


class _PatientPool(_BasePool):
    """A pool where waiting for a connection ends with a TimeoutError."""

    __slots__ = ("_patience",)

    def __init__(self, patience: float | None, database_url: str, **options: Any) -> None:
        super().__init__(
            database_url,
            max_queries=50_000,
            max_inactive_connection_lifetime=300.0,
            loop=None,
            connection_class=asyncpg.Connection,
            record_class=asyncpg.Record,
            **options,
        )
        self._patience = patience

    def acquire(self, *, timeout: float | None = None) -> "asyncpg.pool.PoolAcquireContext[asyncpg.Record]":
        # A time limit costs a task: only where there is something to wait for.
        if timeout is None and self.get_idle_size() == 0:
            timeout = self._patience
        return super().acquire(timeout=timeout)


async def _prepare_connection(connection: "Connection") -> None:
    # json columns stay text: events are sent to clients exactly as they were stored.
    await connection.set_type_codec("jsonb", schema="pg_catalog", encoder=to_json, decoder=orjson.loads)
    await register_vector(connection)


async def _keep_session(_connection: "AnyConnection") -> None:
    # asyncpg's reset costs 0.26 ms a release and undoes what nobody here does: session settings, cursors, LISTEN, advisory locks.
    return


async def open_pool(
    database_url: str, application_name: str, settings: PoolSettings, session: Mapping[str, str] | None = None
) -> "Pool":
    """A pool on a migrated database; waits for one that is not up or not migrated yet. `session` are PostgreSQL's settings, by name.

    Raises asyncpg's or the system's error when `start_timeout` has passed.
    """
    async with asyncio.timeout(settings.start_timeout):
        while True:
            try:
                return await _try_open(database_url, application_name, settings, session or {})
            except (
                *DATABASE_TROUBLE,
                asyncpg.InvalidCatalogNameError,
                asyncpg.UndefinedTableError,
                ValueError,
            ) as error:
                # ValueError: pgvector's type is not there because the migrations have not run yet.
                log.warning("database.waiting", cause=type(error).__name__)
                await asyncio.sleep(0.5)


async def _try_open(
    database_url: str, application_name: str, settings: PoolSettings, session: Mapping[str, str]
) -> "Pool":
    pool = _PatientPool(
        settings.acquire_timeout,
        database_url,
        min_size=settings.min_size,
        max_size=settings.max_size,
        timeout=settings.connect_timeout,
        command_timeout=settings.command_timeout,
        init=_prepare_connection,
        reset=_keep_session,
        server_settings={
            "application_name": application_name,
            "timezone": "UTC",
            "lock_timeout": str(int(settings.lock_timeout * 1000)),
            "idle_in_transaction_session_timeout": "60000",
            **session,
        },
    )
    await pool
    try:
        await pool.execute("SELECT 'session_event'::regclass")  # needs no right on it
    except BaseException:
        await pool.close()
        raise
    return pool
