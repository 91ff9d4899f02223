"""A database of a size: the product's schema and accounts, filled in bulk, its large bases indexed by the product's own sweeps."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

import asyncpg
import psutil
import structlog

from deploy.local.postgres import LocalPostgres
from services.ingestion.settings import VectorIndexSettings
from services.ingestion.vector_indexes import VectorIndexes
from shared.db.pool import AnyConnection, Pool, PoolSettings, open_pool
from shared.ids import new_id
from tests.bench.scale.corpus import CHUNKS_PER_DOCUMENT, Corpus, Part
from tests.support.stack import REPOSITORY, clean_environment, free_port

log = structlog.get_logger()

DIRECTORY: Final = REPOSITORY / ".local" / "bench" / "scale"
TENANT: Final = UUID(int=1)
MODEL: Final = "synthetic"
# What is cheaper to make once everything is there, as are foreign keys. Keys stay.
_REBUILT: Final = ("chunk_keywords", "chunk_counts", "chunk_by_id", "chunk_embedding_by_generation")

INSERT_DOCUMENTS = """
INSERT INTO document (tenant_id, id, knowledge_base_id, filename, media_type, size, sha256, current_version, state, chunk_count)
SELECT $1, d.id, $2, 'document-' || d.id || '.md', 'text/markdown', 1, decode(replace(d.id::text, '-', ''), 'hex'), 1, 'ready', d.chunks
FROM unnest($3::uuid[], $4::integer[]) AS d (id, chunks)
"""
INSERT_CHUNKS = """
INSERT INTO chunk (tenant_id, id, knowledge_base_id, document_id, version, ordinal, title, heading_path, content, char_start, char_end,
    keywords, keyword_count)
SELECT $1, c.id, $2, c.document_id, 1, c.ordinal, '', '{}', c.content, 0, length(c.content), c.keywords::tsvector, c.keyword_count
FROM unnest($3::uuid[], $4::uuid[], $5::integer[], $6::text[], $7::text[], $8::integer[])
    AS c (id, document_id, ordinal, content, keywords, keyword_count)
"""
VECTOR_COLUMNS = ("tenant_id", "knowledge_base_id", "chunk_id", "field", "embedding", "generation")


@dataclass(frozen=True)
class Loaded:
    """A filled database, and what it took to fill it."""

    owner_url: str
    retrieval_url: str
    sizes: Sequence[int]
    load_seconds: float
    index_seconds: float
    server_pid: int


@asynccontextmanager
async def running_server(directory: Path) -> AsyncIterator[LocalPostgres]:
    """PostgreSQL with the data of earlier runs, durable as in production."""
    server = LocalPostgres(directory, free_port())
    await asyncio.to_thread(server.start)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.stop)


async def load(server: LocalPostgres, corpus: Corpus, sizes: Sequence[int], settings: VectorIndexSettings) -> Loaded:
    """The database of these bases, from an earlier run where it is complete."""
    name = f"scale_{sum(sizes)}"
    url = server.database_url(name)
    seconds = await _seconds_of(url)
    if not seconds:
        await _create(server, name)
        seconds = [await _fill(url, corpus, sizes), await _index(url, settings)]
        connection = await asyncpg.connect(url)
        await connection.execute("CREATE TABLE complete (seconds float8[])")
        await connection.execute("INSERT INTO complete VALUES ($1)", seconds)
        await connection.close()
    load_seconds, index_seconds = seconds
    connection = await asyncpg.connect(url)
    pid = psutil.Process(connection.get_server_pid()).ppid()
    await connection.close()
    return Loaded(url, server.account_url("retrieval", name), sizes, load_seconds, index_seconds, pid)


async def _seconds_of(url: str) -> list[float]:
    """What it took to load and to index the database; empty when it isn't there or was not completed."""
    try:
        connection = await asyncpg.connect(url)
    except asyncpg.InvalidCatalogNameError:
        return []
    try:
        return list(await connection.fetchval("SELECT seconds FROM complete"))
    except asyncpg.UndefinedTableError:
        return []
    finally:
        await connection.close()


async def _create(server: LocalPostgres, name: str) -> None:
    connection = await asyncpg.connect(server.url)
    await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    environment = {**clean_environment(), **server.account_passwords(), "DATABASE_URL": server.database_url(name)}
    migrate = [sys.executable, "-m", "shared.db.migrate"]
    await asyncio.to_thread(subprocess.run, migrate, cwd=REPOSITORY, env=environment, check=True)


async def _fill(url: str, corpus: Corpus, sizes: Sequence[int]) -> float:
    """The seconds that it takes."""
    began = time.monotonic()
    pool = await open_pool(url, "bench", PoolSettings(max_size=1, command_timeout=3600))
    async with pool.acquire() as connection:
        await connection.execute("SET maintenance_work_mem = '512MB'; SET synchronous_commit = off")
        await connection.execute("INSERT INTO tenant (id, name) VALUES ($1, 'bench')", TENANT)
        definitions = await _drop_foreign_keys(connection) + await _drop_indexes(connection)
        for number, size in enumerate(sizes):
            async with connection.transaction():
                await _add_base(connection, corpus, number, size)
            if number in (0, 9, 99, 999):
                log.info("base.loaded", base=number, chunks=size, seconds=round(time.monotonic() - began))
        for definition in definitions:
            await connection.execute(definition)
        await connection.execute("VACUUM ANALYZE")
    await pool.close()
    return time.monotonic() - began


async def _drop_foreign_keys(connection: AnyConnection) -> list[str]:
    """What makes them again."""
    rows = await connection.fetch(
        "SELECT conrelid::regclass::text AS relation, conname, pg_get_constraintdef(oid) AS definition FROM pg_constraint"
        " WHERE contype = 'f' AND conrelid IN ('chunk'::regclass, 'chunk_embedding'::regclass)"
    )
    for row in rows:
        await connection.execute(f"ALTER TABLE {row['relation']} DROP CONSTRAINT {row['conname']}")
    return [f"ALTER TABLE {row['relation']} ADD CONSTRAINT {row['conname']} {row['definition']}" for row in rows]


async def _drop_indexes(connection: AnyConnection) -> list[str]:
    """What makes them again."""
    rows = await connection.fetch(
        "SELECT indexname, indexdef FROM pg_indexes WHERE indexname = ANY ($1::text[])", _REBUILT
    )
    for row in rows:
        await connection.execute(f"DROP INDEX {row['indexname']}")
    return [re.sub(r"^CREATE (UNIQUE )?INDEX", r"CREATE \1INDEX", row["indexdef"]) for row in rows]


async def _add_base(connection: AnyConnection, corpus: Corpus, number: int, size: int) -> None:
    base_id = corpus.base_id(number)
    await connection.execute(
        "INSERT INTO knowledge_base (tenant_id, id, name, embedding_model) VALUES ($1, $2, $3, $4)",
        TENANT, base_id, f"base {number}", MODEL,
    )  # fmt: skip
    chunks = [min(CHUNKS_PER_DOCUMENT, size - start) for start in range(0, size, CHUNKS_PER_DOCUMENT)]
    documents = [new_id() for _ in chunks]
    await connection.execute(INSERT_DOCUMENTS, TENANT, base_id, documents, chunks)
    ordinal = 0
    for part in corpus.parts(number, size):
        await _add_part(connection, base_id, documents, part, ordinal)
        ordinal += len(part.contents)


async def _add_part(
    connection: AnyConnection, base_id: UUID, documents: Sequence[UUID], part: Part, ordinal: int
) -> None:
    ids = [new_id() for _ in part.contents]
    await connection.execute(
        INSERT_CHUNKS, TENANT, base_id, ids, [documents[n] for n in part.documents],
        list(range(ordinal, ordinal + len(ids))), part.contents, part.keywords, part.lengths,
    )  # fmt: skip
    rows = [(TENANT, base_id, chunk_id, "body", vector, 1) for chunk_id, vector in zip(ids, part.vectors, strict=True)]
    await connection.copy_records_to_table("chunk_embedding", columns=VECTOR_COLUMNS, records=rows)


async def _index(url: str, settings: VectorIndexSettings) -> float:
    """Lets the product's sweeps build what they find is due; the seconds that it takes."""
    began = time.monotonic()
    pool = await open_pool(url, "bench", PoolSettings(max_size=2))
    indexes = VectorIndexes(pool, settings)
    while True:
        await indexes.sweep()
        if not await _unfinished(pool):
            break
        await asyncio.sleep(0.2)
    await pool.execute("VACUUM ANALYZE", timeout=3600)
    await pool.close()
    return time.monotonic() - began


async def _unfinished(pool: Pool) -> bool:
    return bool(
        await pool.fetchval(
            "SELECT EXISTS (SELECT FROM vector_change) OR EXISTS (SELECT FROM vector_pending)"
            " OR EXISTS (SELECT FROM vector_index WHERE due)"
        )
    )


def load_average() -> float:
    """How many processes wanted the processors in the last minute."""
    return round(os.getloadavg()[0], 1)
