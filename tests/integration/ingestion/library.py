"""A knowledge base in a test's database, with the writes that the gateway makes, and patience."""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg
import orjson

from shared.contracts.commands import IngestDocument
from shared.db.pool import AnyConnection, Pool
from shared.ids import new_id
from shared.outbox import add_to_outbox
from shared.topology import kind_of

_PART = 64 * 1024


async def eventually(probe: Callable[[], Awaitable[bool]], what: str, seconds: float = 20) -> None:
    """Returns when the probe says true; fails when that takes longer."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if await probe():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"after {seconds:g} s still not so: {what}")


def chapters(word: str, count: int) -> str:
    """A Markdown document that becomes so many chunks; texts of different words have nothing in common."""
    return "\n".join(f"# {word} {number}\n\nThe body of {word} {number}.\n" for number in range(count))


@dataclass(frozen=True, slots=True)
class Library:
    """One knowledge base of a tenant of its own."""

    pool: Pool
    tenant_id: UUID
    id: UUID

    @classmethod
    async def create(cls, pool: Pool, embed: str = "both", **splitting: Any) -> "Library":
        library = cls(pool, new_id(), new_id())
        await pool.execute("INSERT INTO tenant (id, name) VALUES ($1, $2)", library.tenant_id, str(library.tenant_id))
        await pool.execute(
            "INSERT INTO knowledge_base (tenant_id, id, name, embedding_model, settings) VALUES ($1, $2, 'kb', 'tiny', $3)",
            library.tenant_id,
            library.id,
            {"embed": embed, "splitting": splitting},
        )
        return library

    async def upload(self, text: str | bytes, filename: str = "a.md") -> UUID:
        """A queued document with its bytes and its wake-up."""
        data = text.encode() if isinstance(text, str) else text
        document_id = new_id()
        async with self.pool.acquire() as connection, connection.transaction():
            await connection.execute(
                """INSERT INTO document (tenant_id, id, knowledge_base_id, filename, media_type, size, sha256, request_id)
                   VALUES ($1, $2, $3, $4, $5, $6, $7, 'request-1')""",
                self.tenant_id,
                document_id,
                self.id,
                filename,
                "text/markdown" if filename.endswith(".md") else "text/plain",
                len(data),
                hashlib.sha256(data).digest(),
            )
            await self._put_bytes(connection, document_id, 1, data)
            await self._wake(connection, document_id)
        return document_id

    async def replace(self, document_id: UUID, text: str) -> None:
        """Newer bytes for a document."""
        async with self.pool.acquire() as connection, connection.transaction():
            version = await connection.fetchval(
                """UPDATE document SET version = version + 1, state = 'queued', progress_done = 0, progress_total = 0, error = NULL,
                       lease_epoch = lease_epoch + 1, lease_owner = NULL, lease_until = NULL, attempts = 0, not_before = now(),
                       updated_at = now(), sha256 = $2
                   WHERE id = $1 RETURNING version""",
                document_id,
                hashlib.sha256(text.encode()).digest(),
            )
            await connection.execute("DELETE FROM document_blob WHERE document_id = $1", document_id)
            await self._put_bytes(connection, document_id, version, text.encode())
            await self._wake(connection, document_id)

    async def delete(self, document_id: UUID) -> None:
        await self.pool.execute("DELETE FROM document WHERE tenant_id = $1 AND id = $2", self.tenant_id, document_id)

    async def wake(self, document_id: UUID) -> None:
        """One more wake-up in the outbox."""
        async with self.pool.acquire() as connection:
            await self._wake(connection, document_id)

    async def _wake(self, connection: AnyConnection, document_id: UUID) -> None:
        command = self.command(document_id)
        await add_to_outbox(connection, kind_of(command), document_id, command)

    def command(self, document_id: UUID) -> IngestDocument:
        return IngestDocument(
            tenant_id=self.tenant_id, knowledge_base_id=self.id, document_id=document_id, request_id="request-1"
        )

    async def document(self, document_id: UUID) -> asyncpg.Record:
        row = await self.pool.fetchrow("SELECT * FROM document WHERE id = $1", document_id)
        assert row is not None
        return row

    async def until(self, document_id: UUID, *states: str, seconds: float = 20) -> asyncpg.Record:
        """The document as soon as it is in one of these states."""

        async def reached() -> bool:
            return (await self.document(document_id))["state"] in states

        await eventually(reached, f"document is {' or '.join(states)}", seconds)
        return await self.document(document_id)

    async def chunks(self, document_id: UUID) -> list[asyncpg.Record]:
        return await self.pool.fetch("SELECT * FROM chunk WHERE document_id = $1 ORDER BY ordinal", document_id)

    async def vectors(self, document_id: UUID, generation: int = 1) -> dict[tuple[int, str], list[float]]:
        """A generation's vectors by ordinal and field."""
        rows = await self.pool.fetch(
            """SELECT c.ordinal, e.field, e.embedding FROM chunk_embedding e
               JOIN chunk c ON c.id = e.chunk_id WHERE c.document_id = $1 AND e.generation = $2""",
            document_id,
            generation,
        )
        return {(row["ordinal"], row["field"]): row["embedding"].to_list() for row in rows}

    async def events(self, document_id: UUID) -> list[dict[str, Any]]:
        """The documents in the knowledge base's events about this one, in order."""
        rows = await self.pool.fetch(
            "SELECT seq, payload FROM knowledge_base_event WHERE knowledge_base_id = $1 ORDER BY seq", self.id
        )
        assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
        documents = [orjson.loads(row["payload"]).get("document") for row in rows]
        return [document for document in documents if document and document["id"] == str(document_id)]

    async def _put_bytes(self, connection: AnyConnection, document_id: UUID, version: int, data: bytes) -> None:
        parts = [data[start : start + _PART] for start in range(0, len(data), _PART)] or [b""]
        await connection.executemany(
            "INSERT INTO document_blob (tenant_id, document_id, version, part, data) VALUES ($1, $2, $3, $4, $5)",
            [(self.tenant_id, document_id, version, number, part) for number, part in enumerate(parts)],
        )

    async def assert_ready(self, document_id: UUID, chunks: int, seconds: float = 40) -> None:
        """Waits for the end and looks at everything that must hold for a document of one vector a chunk."""
        document = await self.until(document_id, "ready", "failed", seconds=seconds)
        assert (document["state"], document["chunk_count"], document["error"]) == ("ready", chunks, None)
        rows = await self.chunks(document_id)
        assert [row["ordinal"] for row in rows] == list(range(chunks))
        assert {row["version"] for row in rows} == {document["current_version"]} == {document["version"]}
        assert len(await self.vectors(document_id)) == chunks
        events = await self.events(document_id)
        assert [event["state"] for event in events if event["version"] == document["version"]].count("ready") == 1
