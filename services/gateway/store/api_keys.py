"""API keys: `cm_` and 256 random bits, of which the database holds the SHA-256.

A key is found by its hash, so no comparison depends on its characters, and with 256 bits there is nothing to guess or to tabulate.
"""

import hashlib
import secrets
import time
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from services.gateway.subscriptions import EventsUnavailable
from shared.db.pool import DATABASE_TROUBLE, AnyConnection, Pool
from shared.db.queries import load_queries
from shared.ids import new_id

SQL = load_queries(Path(__file__).with_name("api_keys.sql"))

PREFIX = "cm_"
_MAX_CACHED = 10_000


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose request this is."""

    tenant_id: UUID
    key_hash: bytes


def generate_key() -> str:
    """A new key, to be shown once."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_key(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


class ApiKeys:
    """Finds callers by key. A key that was found is remembered for `cache_seconds`, which is how long its end may take."""

    def __init__(self, pool: Pool, cache_seconds: float) -> None:
        self._pool = pool
        self._cache_seconds = cache_seconds
        self._found: dict[bytes, tuple[Caller, float]] = {}

    async def find(self, key: str) -> Caller | None:
        """The caller with this key, None when there is none."""
        key_hash = hash_key(key)
        caller, until = self._found.get(key_hash, (None, 0.0))
        if caller is not None and time.monotonic() < until:
            return caller
        tenant_id = await self._pool.fetchval(SQL["find_api_key"], key_hash)
        if tenant_id is None:
            self._found.pop(key_hash, None)
            return None
        if len(self._found) >= _MAX_CACHED:
            self._found.clear()
        caller = Caller(tenant_id, key_hash)
        self._found[key_hash] = (caller, time.monotonic() + self._cache_seconds)
        return caller

    async def valid_among(self, key_hashes: Collection[bytes]) -> Collection[bytes]:
        """Those of the hashes whose keys still work. Raises EventsUnavailable when the database is away."""
        try:
            rows = await self._pool.fetch(SQL["valid_api_keys"], list(key_hashes))
        except DATABASE_TROUBLE as error:
            raise EventsUnavailable from error
        return [row["key_hash"] for row in rows]


async def issue_key(connection: AnyConnection, tenant: str, name: str, expires_in: timedelta | None = None) -> str:
    """Makes a key for a tenant, and the tenant when it is new. It works for `expires_in`, or until it is revoked."""
    key = generate_key()
    tenant_id = await connection.fetchval(SQL["ensure_tenant"], new_id(), tenant)
    await connection.execute(SQL["add_api_key"], new_id(), tenant_id, name, hash_key(key), expires_in)
    return key


async def is_valid(connection: AnyConnection, key: str) -> bool:
    return await connection.fetchval(SQL["find_api_key"], hash_key(key)) is not None


async def revoke_key(connection: AnyConnection, key: str) -> bool:
    """False when there is no such key, or it was revoked before."""
    return await connection.fetchval(SQL["revoke_api_key"], hash_key(key)) is not None
