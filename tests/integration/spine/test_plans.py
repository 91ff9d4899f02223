"""No statement reads a whole table: plans on tables of a size where a scan would be noticed."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import orjson
import pytest

from shared.db.pool import Pool, PoolSettings, open_pool
from tests.integration.spine.statements import STATEMENTS
from tests.support.stack import Stack

ROWS = 5_000
# The outbox is empty as a rule: a scan reads nothing, an index would be one more to maintain. Changes of counters are folded every second.
# A vector index has one row and belongs to a base of ten thousand vectors or so; what is noted for them is worked off every few seconds.
SMALL = {"outbox", "tenant", "api_key", "agent_knowledge_base", "unfinished", "unfinished_change", "request_rate"}
SMALL |= {"embedding_generation", "vector_index", "vector_pending", "vector_change"}

SCANS_ALLOWED = {
    "services/gateway/store/idempotency.sql forget_idempotency_keys: scans idempotency_key": "once in a while, for a fifth of these rows",
}
SORTS_ALLOWED = {
    "services/gateway/store/documents.sql list_tagged_documents": "those that have the tags, found by an index of the tags",
    "services/gateway/store/documents.sql list_chunks": "the chunks of one document; the planner can't see that it has one version",
}

# Ten tenants; a row belongs to the tenant, session, knowledge base and document of its number modulo 10, 50, 100 or 500.
SEED = """
CREATE FUNCTION pg_temp.id(kind text, n bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$ SELECT md5(kind || n)::uuid $$;
INSERT INTO tenant (id, name) SELECT pg_temp.id('tenant', n), n::text FROM generate_series(0, 9) n;
INSERT INTO agent (tenant_id, id, name, model, max_steps)
SELECT pg_temp.id('tenant', n % 10), pg_temp.id('agent', n), 'a', 'm', 20 FROM generate_series(0, {rows} - 1) n;
INSERT INTO knowledge_base (tenant_id, id, name, embedding_model)
SELECT pg_temp.id('tenant', n % 10), pg_temp.id('base', n), 'k', 'e' FROM generate_series(0, {rows} - 1) n;
INSERT INTO agent_knowledge_base (tenant_id, agent_id, knowledge_base_id, position)
SELECT pg_temp.id('tenant', n % 10), pg_temp.id('agent', n), pg_temp.id('base', n), 0 FROM generate_series(0, {rows} - 1) n;
INSERT INTO chat_session (tenant_id, id, agent_id)
SELECT pg_temp.id('tenant', n % 10), pg_temp.id('session', n), pg_temp.id('agent', n) FROM generate_series(0, {rows} - 1) n;
INSERT INTO run (tenant_id, id, session_id, seq, status, reason, lease_owner, lease_until, wake_at, created_at)
SELECT pg_temp.id('tenant', n % 10), pg_temp.id('run', n), pg_temp.id('session', n % 500), n,
       CASE WHEN n < 50 THEN 'running' WHEN n > {rows} - 50 THEN 'queued' ELSE 'finished' END,
       CASE WHEN n BETWEEN 50 AND {rows} - 50 THEN 'completed' END,
       CASE WHEN n < 50 THEN pg_temp.id('owner', n % 4) END,
       CASE WHEN n < 50 THEN now() + interval '20 seconds' END, now() + n * interval '1 second', now() - n * interval '1 minute'
FROM generate_series(0, {rows} - 1) n;
INSERT INTO run_step (tenant_id, run_id, n, step, kind, state, message_id, lease_epoch, started_at)
SELECT pg_temp.id('tenant', n % 10), pg_temp.id('run', n), 1, 1, 'think', 'done', pg_temp.id('message', n), 1, now()
FROM generate_series(0, {rows} - 1) n;
INSERT INTO chat_message (tenant_id, id, session_id, run_id, seq, run_seq, role, content)
SELECT pg_temp.id('tenant', n % 10), pg_temp.id('message', n), pg_temp.id('session', n % 500), pg_temp.id('run', n), n, n, 'user',
       repeat('x', 200)
FROM generate_series(0, {rows} - 1) n;
INSERT INTO session_event (tenant_id, session_id, seq, type, payload)
SELECT pg_temp.id('tenant', n % 10), pg_temp.id('session', n % 50), n, 'message.created', json_build_object('text', repeat('x', 200))
FROM generate_series(0, {rows} - 1) n;
INSERT INTO document (tenant_id, id, knowledge_base_id, filename, media_type, size, sha256, state,
    lease_owner, lease_until, current_version)
SELECT pg_temp.id('tenant', n % 10), pg_temp.id('document', n), pg_temp.id('base', n % 100), 'a.md', 'text/markdown', 1,
       sha256(n::text::bytea),
       CASE WHEN n < 50 THEN 'embedding' WHEN n < 100 THEN 'queued' WHEN n < 150 THEN 'failed' ELSE 'ready' END,
       CASE WHEN n < 50 THEN pg_temp.id('owner', n % 4) END, CASE WHEN n < 50 THEN now() + interval '20 seconds' END, 1
FROM generate_series(0, {rows} - 1) n;
INSERT INTO document_blob (tenant_id, document_id, version, part, data)
SELECT pg_temp.id('tenant', n % 10), pg_temp.id('document', n), 1, 0, 'x' FROM generate_series(0, {rows} - 1) n;
INSERT INTO knowledge_base_event (tenant_id, knowledge_base_id, seq, type, payload)
SELECT pg_temp.id('tenant', n % 10), pg_temp.id('base', n % 100), n, 'document.state', '{{}}' FROM generate_series(0, {rows} - 1) n;
INSERT INTO chunk (tenant_id, id, knowledge_base_id, document_id, version, ordinal, title, heading_path, content,
    char_start, char_end, keywords, keyword_count)
SELECT pg_temp.id('tenant', n % 10), pg_temp.id('chunk', n), pg_temp.id('base', n % 50), pg_temp.id('document', n % 50), 1, n, 't', '{{}}',
       repeat('x', 200), 0, 200,
       to_tsvector('simple', 'word' || n % 97 || ' rare' || n), 2
FROM generate_series(0, {rows} - 1) n;
INSERT INTO chunk_parent (tenant_id, id, knowledge_base_id, document_id, version, ordinal, title, heading_path, content, char_start,
    char_end)
SELECT pg_temp.id('tenant', n % 10), pg_temp.id('parent', n), pg_temp.id('base', n % 50), pg_temp.id('document', n % 50), 1, n, 't', '{{}}',
       repeat('x', 200), 0, 200
FROM generate_series(0, {rows} - 1) n;
INSERT INTO chunk_embedding (tenant_id, knowledge_base_id, chunk_id, field, embedding)
SELECT pg_temp.id('tenant', n % 10), pg_temp.id('base', n % 50), pg_temp.id('chunk', n), 'body', ARRAY[n, 1, 2, 3, 4, 5, 6, 7]::vector
FROM generate_series(0, {rows} - 1) n;
INSERT INTO embedding_cache (model, text_sha256, embedding, created_at)
SELECT 'e', sha256(n::text::bytea), '[1,2,3]', now() - n * interval '1 minute' FROM generate_series(0, {rows} - 1) n;
INSERT INTO idempotency_key (tenant_id, key, fingerprint, status, response, created_at)
SELECT pg_temp.id('tenant', n % 10), n::text, 'x', 202, '{{}}', now() - n * interval '1 minute'
FROM generate_series(0, {rows} - 1) n;
ANALYZE;
"""  # fmt: skip


@pytest.fixture(scope="module")
async def large(stack: Stack) -> AsyncIterator[Pool]:
    """A pool on tables of 5,000 rows each, with statistics."""
    url = stack.create_database()
    pool = await open_pool(url, "test", PoolSettings(max_size=1))
    await pool.execute(SEED.format(rows=ROWS))
    yield pool
    await pool.close()
    stack.drop_database(url)


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


async def explain(pool: Pool, statement: str) -> list[dict[str, Any]]:
    """The nodes of the plan that serves all values of the parameters; nothing is executed."""
    async with pool.acquire() as connection:
        parameters = (await connection.prepare(statement)).get_parameters()
        nulls = f"({', '.join('NULL' for _ in parameters)})" if parameters else ""
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        await connection.execute(f"PREPARE explained AS {statement}")
        text = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE explained{nulls}")
        await connection.execute("DEALLOCATE explained")
    return list(nodes(orjson.loads(text)[0]["Plan"]))


async def test_no_statement_scans_a_large_table(large: Pool) -> None:
    scans: list[str] = []
    for name, statement in STATEMENTS.items():
        scanned = [node["Relation Name"] for node in await explain(large, statement) if node["Node Type"] == "Seq Scan"]
        scans += [f"{name}: scans {table}" for table in scanned if table not in SMALL and not table.startswith("pg_")]
    assert set(scans) == set(SCANS_ALLOWED), "\n".join(["", *scans])


async def test_a_scan_would_be_seen(large: Pool) -> None:
    plan = await explain(large, "SELECT id FROM run WHERE request_id = $1")
    assert ("Seq Scan", "run") in [(node["Node Type"], node.get("Relation Name")) for node in plan]


LISTS = [
    name
    for name, statement in STATEMENTS.items()
    if (name.split()[1].startswith("list_") or (name.endswith("_events") and "INSERT" not in statement))
    and name not in SORTS_ALLOWED
]


@pytest.mark.parametrize("name", LISTS)
async def test_lists_are_read_in_the_order_of_an_index(large: Pool, name: str) -> None:
    """A page costs its rows, however long the list is: nothing is sorted, nothing is skipped."""
    plan = await explain(large, STATEMENTS[name])
    assert [node["Node Type"] for node in plan if "Sort" in node["Node Type"]] == []
    assert "OFFSET" not in STATEMENTS[name]
