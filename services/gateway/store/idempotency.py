"""Idempotency keys: the same key and request answer the same result, because both were committed together."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import asyncpg
import structlog

from services.gateway.refusals import Refusal
from shared.db.pool import DATABASE_TROUBLE, AnyConnection, Pool
from shared.db.queries import load_queries

log = structlog.get_logger()

SQL = load_queries(Path(__file__).with_name("idempotency.sql"))

_SWEEP_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """A request that may come again. `fingerprint` is the SHA-256 of method, path and body."""

    tenant_id: UUID
    key: str
    fingerprint: bytes
    keep: timedelta


def fingerprint(method: str, path: str, body: bytes) -> bytes:
    return hashlib.sha256(b"\n".join((method.encode(), path.encode(), body))).digest()


async def create_once(
    connection: AnyConnection, request: IdempotentRequest | None, status: int, create: Callable[[], Awaitable[str]]
) -> str:
    """What `create` answers, or what it answered the first time; the caller has opened the transaction.

    Raises Refusal when the key was used for another request. A creation that fails leaves the key unused.
    """
    if request is None:
        return await create()
    claimed = await connection.fetchval(
        SQL["claim_idempotency_key"], request.tenant_id, request.key, request.fingerprint, request.keep
    )
    if claimed is None:
        row = await connection.fetchrow(SQL["read_idempotency_key"], request.tenant_id, request.key)
        return _answer(row, request)
    body = await create()
    await connection.execute(SQL["finish_idempotency_key"], request.tenant_id, request.key, status, body)
    return body


async def is_answered(connection: AnyConnection, request: IdempotentRequest) -> bool:
    """Whether this key has an answer already."""
    return bool(await connection.fetchval(SQL["key_is_used"], request.tenant_id, request.key, request.keep))


async def earlier_answer(connection: AnyConnection, request: IdempotentRequest) -> str | None:
    """What this request was answered before; None the first time. Raises Refusal when the key was used for another request."""
    if not await is_answered(connection, request):
        return None
    return _answer(await connection.fetchrow(SQL["read_idempotency_key"], request.tenant_id, request.key), request)


def _answer(row: asyncpg.Record | None, request: IdempotentRequest) -> str:
    if row is None or row["fingerprint"] != request.fingerprint:
        raise Refusal("idempotency_conflict", "This Idempotency-Key was used for another request.")
    response: str = row["response"]
    return response


async def forget_old_keys_for_ever(pool: Pool, keep: timedelta) -> None:
    """Removes keys that are older than `keep`, every five minutes."""
    while True:
        try:
            while await pool.execute(SQL["forget_idempotency_keys"], keep) == "DELETE 1000":
                pass
        except DATABASE_TROUBLE as error:
            log.warning("idempotency.not_swept", cause=type(error).__name__)
        await asyncio.sleep(_SWEEP_SECONDS)
