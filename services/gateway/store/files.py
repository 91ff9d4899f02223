"""What a hit leads to: the stored bytes of a document, part by part, and a chunk by its id."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from services.gateway.refusals import not_found
from shared.db.pool import AnyConnection, Pool
from shared.db.queries import load_queries

SQL = load_queries(Path(__file__).with_name("files.sql"))


class FileChanged(Exception):
    """The document was deleted or got other bytes while its file was being sent."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A document's newest bytes, as they were described when they were asked for."""

    tenant_id: UUID
    document_id: UUID
    filename: str
    media_type: str
    size: int
    sha256: bytes

    async def parts(self, pool: Pool) -> AsyncIterator[bytes]:
        """The bytes in parts of at most 1 MiB; no connection is held between them. Raises FileChanged."""
        sent = number = 0
        while sent < self.size:
            part: bytes | None = await pool.fetchval(
                SQL["read_file_part"], self.tenant_id, self.document_id, self.sha256, number
            )
            if not part:
                raise FileChanged
            yield part
            sent, number = sent + len(part), number + 1


async def find_file(connection: AnyConnection, tenant_id: UUID, document_id: UUID) -> StoredFile:
    """Raises Refusal when there is no such document."""
    row = await connection.fetchrow(SQL["describe_file"], tenant_id, document_id)
    if row is None:
        raise not_found("document")
    return StoredFile(tenant_id, document_id, **dict(row))


async def read_chunk(connection: AnyConnection, tenant_id: UUID, chunk_id: UUID) -> str:
    """Raises Refusal when there is no such chunk, or when its document has newer ones."""
    body: str | None = await connection.fetchval(SQL["read_chunk"], tenant_id, chunk_id)
    if body is None:
        raise not_found("chunk")
    return body
