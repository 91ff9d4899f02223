"""No row can point across tenants: refused by the schema, whatever a statement does."""

from dataclasses import dataclass
from uuid import UUID

import asyncpg

from shared.db.pool import AnyConnection, Pool
from shared.ids import new_id
from tests.support.seed import SeededSession, post, seed_session

# What a tenant's row refers to by a column alone, and why no foreign key stands behind it.
WITHOUT_FOREIGN_KEY = {
    ("run", "request_id"): "a name in logs",
    ("chat_message", "run_id"): "written with the run by one statement; read within a session only",
    ("chat_message", "tool_call_id"): "the model's name for a call",
    ("run_step", "tool_call_id"): "the model's name for a call",
    ("run_step", "message_id"): "written with the message by one statement",
    ("document", "request_id"): "a name in logs",
    ("embedding_generation", "request_id"): "a name in logs",
    ("chunk_embedding", "knowledge_base_id"): "a copy of its chunk's, for an index of its own",
}


@dataclass(frozen=True)
class Tenant:
    """One row of everything that others can refer to."""

    seeded: SeededSession
    run_id: UUID
    document_id: UUID
    chunk_id: UUID


async def make_tenant(pool: Pool) -> Tenant:
    seeded = await seed_session(pool)
    tenant = Tenant(seeded, await post(pool, seeded, "hello"), new_id(), new_id())
    async with pool.acquire() as connection:
        await insert_document(connection, seeded.tenant_id, tenant.document_id, seeded.knowledge_base_id)
        await insert_chunk(connection, seeded.tenant_id, tenant.chunk_id, seeded.knowledge_base_id, tenant.document_id)
    return tenant


async def insert_document(
    connection: AnyConnection, tenant_id: UUID, document_id: UUID, knowledge_base_id: UUID
) -> None:
    await connection.execute(
        "INSERT INTO document (tenant_id, id, knowledge_base_id, filename, media_type, size, sha256)"
        " VALUES ($1, $2, $3, 'a.md', 'text/markdown', 1, '\\x00')",
        tenant_id, document_id, knowledge_base_id,
    )  # fmt: skip


async def insert_chunk(
    connection: AnyConnection, tenant_id: UUID, chunk_id: UUID, knowledge_base_id: UUID, document_id: UUID
) -> None:
    await connection.execute(
        "INSERT INTO chunk (tenant_id, id, knowledge_base_id, document_id, version, ordinal, title, heading_path, content,"
        " char_start, char_end, keywords, keyword_count) VALUES ($1, $2, $3, $4, 2, 0, '', '{}', '', 0, 0, '', 0)",
        tenant_id, chunk_id, knowledge_base_id, document_id,
    )  # fmt: skip


# Rows of tenant $1 that refer to something of somebody else ($2).
REFERENCES = {
    "session -> agent": ("INSERT INTO chat_session (tenant_id, id, agent_id) VALUES ($1, gen_random_uuid(), $2)", "agent"),
    "run -> session": ("INSERT INTO run (tenant_id, id, session_id, seq) VALUES ($1, gen_random_uuid(), $2, 9)", "session"),
    "message -> session": (
        "INSERT INTO chat_message (tenant_id, id, session_id, seq, run_seq, role, content)"
        " VALUES ($1, gen_random_uuid(), $2, 9, 9, 'user', '')",
        "session",
    ),
    "event -> session": (
        "INSERT INTO session_event (tenant_id, session_id, seq, type, payload) VALUES ($1, $2, 9, 'x', '{}')",
        "session",
    ),
    "step -> run": (
        "INSERT INTO run_step (tenant_id, run_id, n, step, kind, state, message_id, lease_epoch, started_at)"
        " VALUES ($1, $2, 1, 1, 'think', 'done', gen_random_uuid(), 1, now())",
        "run",
    ),
    "grant -> knowledge base": (
        "INSERT INTO agent_knowledge_base (tenant_id, agent_id, knowledge_base_id, position)"
        " SELECT $1, id, $2, 9 FROM agent WHERE tenant_id = $1",
        "knowledge_base",
    ),
    "grant -> agent": (
        "INSERT INTO agent_knowledge_base (tenant_id, agent_id, knowledge_base_id, position)"
        " SELECT $1, $2, id, 9 FROM knowledge_base WHERE tenant_id = $1",
        "agent",
    ),
    "document -> knowledge base": (
        "INSERT INTO document (tenant_id, id, knowledge_base_id, filename, media_type, size, sha256)"
        " VALUES ($1, gen_random_uuid(), $2, 'b.md', 'text/markdown', 1, '\\x01')",
        "knowledge_base",
    ),
    "generation -> knowledge base": (
        "INSERT INTO embedding_generation (tenant_id, knowledge_base_id, generation, model, state) VALUES ($1, $2, 2, 'm', 'building')",
        "knowledge_base",
    ),
    "event -> knowledge base": (
        "INSERT INTO knowledge_base_event (tenant_id, knowledge_base_id, seq, type, payload) VALUES ($1, $2, 9, 'x', '{}')",
        "knowledge_base",
    ),
    "bytes -> document": (
        "INSERT INTO document_blob (tenant_id, document_id, version, part, data) VALUES ($1, $2, 1, 9, '')",
        "document",
    ),
    "chunk -> document": (
        "INSERT INTO chunk (tenant_id, id, knowledge_base_id, document_id, version, ordinal, title, heading_path, content, char_start,"
        " char_end, keywords, keyword_count)"
        " SELECT $1, gen_random_uuid(), id, $2, 1, 9, '', '{}', '', 0, 0, '', 0 FROM knowledge_base WHERE tenant_id = $1",
        "document",
    ),
    "chunk -> knowledge base": (
        "INSERT INTO chunk (tenant_id, id, knowledge_base_id, document_id, version, ordinal, title, heading_path, content, char_start,"
        " char_end, keywords, keyword_count)"
        " SELECT $1, gen_random_uuid(), $2, id, 1, 9, '', '{}', '', 0, 0, '', 0 FROM document WHERE tenant_id = $1",
        "knowledge_base",
    ),
    "vector -> chunk": (
        "INSERT INTO chunk_embedding (tenant_id, knowledge_base_id, chunk_id, field, embedding)"
        " SELECT $1, id, $2, 'title', '[1]' FROM knowledge_base WHERE tenant_id = $1",
        "chunk",
    ),
}  # fmt: skip


async def test_a_row_cannot_refer_to_another_tenants_row(pool: Pool) -> None:
    ours, theirs = await make_tenant(pool), await make_tenant(pool)
    ids = {
        tenant: {
            "agent": tenant.seeded.agent_id,
            "session": tenant.seeded.session_id,
            "run": tenant.run_id,
            "knowledge_base": tenant.seeded.knowledge_base_id,
            "document": tenant.document_id,
            "chunk": tenant.chunk_id,
        }
        for tenant in (ours, theirs)
    }
    accepted = []
    for name, (statement, noun) in REFERENCES.items():
        try:
            await pool.execute(statement, ours.seeded.tenant_id, ids[theirs][noun])
        except asyncpg.ForeignKeyViolationError:
            continue
        accepted.append(name)
    assert not accepted
    # The same rows are taken when they refer to their own tenant's: it was the tenant that was refused.
    await pool.execute("DELETE FROM agent_knowledge_base")
    for statement, noun in REFERENCES.values():
        async with pool.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            assert await connection.execute(statement, ours.seeded.tenant_id, ids[ours][noun]) == "INSERT 0 1"
            await transaction.rollback()


async def test_every_foreign_key_between_tenants_rows_includes_the_tenant(pool: Pool) -> None:
    rows = await pool.fetch("""
        SELECT conrelid::regclass::text AS child, pg_get_constraintdef(c.oid) AS definition
        FROM pg_constraint c JOIN pg_class parent ON parent.oid = c.confrelid
        WHERE c.contype = 'f' AND parent.relname <> 'tenant'
    """)
    assert len(rows) >= 10
    assert [dict(row) for row in rows if not row["definition"].startswith("FOREIGN KEY (tenant_id, ")] == []


async def test_every_column_that_names_a_row_has_its_foreign_key(pool: Pool) -> None:
    rows = await pool.fetch("""
        SELECT c.table_name, c.column_name
        FROM information_schema.columns c
        WHERE c.table_schema = 'public' AND c.column_name LIKE '%\\_id' AND c.column_name <> 'tenant_id'
          AND EXISTS (SELECT FROM information_schema.columns t WHERE t.table_name = c.table_name AND t.column_name = 'tenant_id')
          AND NOT EXISTS (
            SELECT FROM pg_constraint k
            JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = ANY (k.conkey)
            WHERE k.contype = 'f' AND k.conrelid = c.table_name::regclass AND a.attname = c.column_name)
    """)
    assert {(row["table_name"], row["column_name"]) for row in rows} == set(WITHOUT_FOREIGN_KEY)


COUNTERS = {"unfinished", "unfinished_change"}
"""Numbers by tenant, which come to nothing when its work has gone."""


async def test_every_row_of_a_tenant_goes_with_it(pool: Pool) -> None:
    ours, theirs = await make_tenant(pool), await make_tenant(pool)
    tables = [
        row["table_name"]
        for row in await pool.fetch(
            "SELECT table_name FROM information_schema.columns WHERE table_schema = 'public' AND column_name = 'tenant_id'"
        )
    ]
    # Sessions go first: they keep their agent from being deleted.
    await pool.execute("DELETE FROM chat_session WHERE tenant_id = $1", ours.seeded.tenant_id)
    await pool.execute("DELETE FROM tenant WHERE id = $1", ours.seeded.tenant_id)

    for table in set(tables) - COUNTERS:
        owners = await pool.fetch(f"SELECT DISTINCT tenant_id FROM {table}")
        assert {row["tenant_id"] for row in owners} <= {theirs.seeded.tenant_id}, table
