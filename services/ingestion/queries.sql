-- name: claim_documents
-- Takes up to $3 queued documents that are due for an owner ($1) until the lease ($2 interval) runs out, in the fair order over tenants, without those of
-- some tenants ($4). One row for each claimed document.
WITH next AS (
    SELECT tenant_id, knowledge_base_id, id, updated_at FROM document
    WHERE state = 'queued' AND not_before <= now() AND tenant_id <> ALL ($4::uuid[])
    ORDER BY fair_tag, id LIMIT $3
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE document d SET
    state = 'parsing', progress_done = 0, progress_total = 0, error = NULL,
    lease_owner = $1, lease_epoch = d.lease_epoch + 1, lease_until = now() + $2::interval,
    attempts = d.attempts + 1, updated_at = now()
FROM next JOIN knowledge_base k ON k.tenant_id = next.tenant_id AND k.id = next.knowledge_base_id
WHERE d.tenant_id = next.tenant_id AND d.id = next.id
RETURNING d.tenant_id, d.knowledge_base_id, d.id, d.version, d.filename, d.media_type, d.lease_epoch, d.attempts, d.deaths, d.request_id,
          k.embedding_model, k.embedding_generation AS generation, coalesce((
              SELECT jsonb_object_agg(g.generation, g.model) FROM embedding_generation g
              WHERE g.tenant_id = d.tenant_id AND g.knowledge_base_id = d.knowledge_base_id AND g.state IN ('building', 'kept')), '{}') AS others,
          k.settings, extract(epoch FROM now() - next.updated_at)::float8 AS waited;

-- name: load_document
-- The bytes of a version ($3) of a document ($1 tenant, $2 id), in parts.
SELECT data FROM document_blob WHERE tenant_id = $1 AND document_id = $2 AND version = $3 ORDER BY part;

-- name: advance_document
-- Moves a claimed document ($1 id, $2 epoch, $3 version) on to a state ($4) with its progress ($5 of $6); $7 says that something was achieved, so that its
-- attempts count from the start again and it waits for nothing. No row when the lease is lost.
UPDATE document SET
    state = $4, progress_done = $5, progress_total = $6, attempts = CASE WHEN $7 THEN 0 ELSE attempts END,
    waiting = CASE WHEN $7 THEN NULL ELSE waiting END, updated_at = now()
WHERE id = $1 AND lease_epoch = $2 AND version = $3 AND state NOT IN ('ready', 'failed')
RETURNING id;

-- name: is_held
-- Whether the lease on a document ($1 id, $2 epoch, $3 version) stands.
SELECT EXISTS (SELECT FROM document WHERE id = $1 AND lease_epoch = $2 AND version = $3 AND state NOT IN ('ready', 'failed'));

-- name: finish_document
-- Makes the claimed version ($3) of a document ($1 id, $2 epoch) the one that searches see, with its number of chunks ($4), warnings ($5) and the type that
-- its content turned out to have ($6, or ''), and ends the lease. No row when the lease is lost. The chunks follow in the same transaction, which keeps the
-- document's row locked against its deletion.
UPDATE document SET
    state = 'ready', current_version = version, chunk_count = $4, progress_done = $4, progress_total = $4, error = NULL, waiting = NULL, deaths = 0,
    warnings = $5, media_type = coalesce(nullif($6, ''), media_type),
    lease_owner = NULL, lease_until = NULL, attempts = 0, updated_at = now()
WHERE id = $1 AND lease_epoch = $2 AND version = $3 AND state NOT IN ('ready', 'failed')
RETURNING id;

-- name: fail_document
-- Ends a claimed document ($1 id, $2 epoch, $3 version) with an error ($4). What searches see stays as it was. No row when the lease is lost.
UPDATE document SET state = 'failed', error = $4, waiting = NULL, lease_owner = NULL, lease_until = NULL, updated_at = now()
WHERE id = $1 AND lease_epoch = $2 AND version = $3 AND state NOT IN ('ready', 'failed')
RETURNING id;

-- name: delay_document
-- Puts a claimed document ($1 id, $2 epoch, $3 version) back for later: at a random moment within 2^attempts seconds, at most $4, and says what it waits for ($6,
-- an error) and since when; or fails it with that error after so many attempts ($5). No row when the lease is lost.
UPDATE document SET
    state = CASE WHEN attempts < $5 THEN 'queued' ELSE 'failed' END,
    error = CASE WHEN attempts < $5 THEN NULL ELSE $6::jsonb END,
    waiting = CASE WHEN attempts < $5 THEN $6::jsonb || jsonb_build_object('since', coalesce(waiting -> 'since', to_jsonb(now()))) END,
    lease_owner = NULL,
    lease_until = NULL,
    not_before = now() + random() * least(2 ^ least(attempts, 30), $4::float8) * interval '1 second',
    updated_at = now()
WHERE id = $1 AND lease_epoch = $2 AND version = $3 AND state NOT IN ('ready', 'failed')
RETURNING state, extract(epoch FROM not_before - now())::float8 AS seconds;

-- name: hand_back_document
-- Puts a claimed document ($1 id, $2 epoch, $3 version) back for now, with a wake-up, as if this claim had not been. No row when the lease is lost.
WITH handed_back AS (
    UPDATE document SET
        state = 'queued', progress_done = 0, progress_total = 0, lease_owner = NULL, lease_until = NULL, not_before = now(),
        attempts = greatest(attempts - 1, 0), updated_at = now()
    WHERE id = $1 AND lease_epoch = $2 AND version = $3 AND state NOT IN ('ready', 'failed')
    RETURNING tenant_id, knowledge_base_id, id, request_id
)
INSERT INTO outbox (kind, subject_id, body)
SELECT 'IngestDocument', id, json_build_object(
    'schema_version', 1, 'tenant_id', tenant_id, 'knowledge_base_id', knowledge_base_id, 'document_id', id, 'request_id', request_id)
FROM handed_back
RETURNING subject_id;

-- name: renew_leases
-- Extends the leases ($3 interval) of an owner ($2) on documents ($1) and returns the ids that are still the owner's. A row that is locked, by the swap of
-- its own job as a rule, is not waited for: nobody else can claim it before the lock is released.
WITH free AS (
    SELECT id FROM document WHERE id = ANY ($1::uuid[]) AND lease_owner = $2 FOR NO KEY UPDATE SKIP LOCKED
), renewed AS (
    UPDATE document d SET lease_until = now() + $3::interval FROM free WHERE d.id = free.id
)
SELECT id FROM document WHERE id = ANY ($1::uuid[]) AND lease_owner = $2;

-- name: hold_generations
-- Keeps the generations of a knowledge base ($1) as they are until the commit.
SELECT pg_advisory_xact_lock_shared(7306, hashtext($1::uuid::text));

-- name: find_generations
-- The generations of a knowledge base ($1 tenant, $2 id) that get the vectors of new chunks. A statement of its own, for a snapshot that was taken under the
-- lock before it.
SELECT embedding_generation AS generation, true AS serves FROM knowledge_base WHERE tenant_id = $1 AND id = $2
UNION ALL
SELECT generation, false FROM embedding_generation WHERE tenant_id = $1 AND knowledge_base_id = $2 AND state IN ('building', 'kept');

-- name: delete_chunks
-- Removes all chunks of a document ($1 tenant, $2 id), vectors included.
DELETE FROM chunk WHERE tenant_id = $1 AND document_id = $2;

-- name: delete_parents
-- Removes the larger pieces of a document ($1 tenant, $2 id), whose chunks are gone.
DELETE FROM chunk_parent WHERE tenant_id = $1 AND document_id = $2;

-- name: insert_parents
-- Adds larger pieces ($5, a JSON array) of a version ($4) of a document ($1 tenant, $2 knowledge base, $3 id), for their chunks to name.
INSERT INTO chunk_parent (
    tenant_id, knowledge_base_id, document_id, version, id, ordinal, title, heading_path, content, char_start, char_end, header_chars,
    page_first, page_last)
SELECT $1, $2, $3, $4, p.id, p.ordinal, p.title, p.heading_path, p.content, p.char_start, p.char_end, p.header_chars, p.page_first, p.page_last
FROM json_to_recordset($5::json) AS p (
    id uuid, ordinal integer, title text, heading_path text[], content text, char_start integer, char_end integer, header_chars integer,
    page_first integer, page_last integer);

-- name: insert_chunks
-- Adds chunks ($5, a JSON array) of a version ($4) of a document ($1 tenant, $2 knowledge base, $3 id).
INSERT INTO chunk (
    tenant_id, knowledge_base_id, document_id, version, id, ordinal, parent_id, title, heading_path, content, char_start, char_end, header_chars,
    page_first, page_last, keywords, keyword_count)
SELECT $1, $2, $3, $4, c.id, c.ordinal, c.parent_id, c.title, c.heading_path, c.content, c.char_start, c.char_end, c.header_chars,
       c.page_first, c.page_last, c.keywords, c.keyword_count
FROM json_to_recordset($5::json) AS c (
    id uuid, ordinal integer, parent_id uuid, title text, heading_path text[], content text, char_start integer, char_end integer,
    header_chars integer, page_first integer, page_last integer, keywords tsvector, keyword_count integer);

-- name: insert_embeddings
-- Gives chunks ($4, one entry a vector) of a knowledge base ($1 tenant, $2 id) their vectors of a generation ($7) for fields ($5) from the cache, by model ($3)
-- and text ($6).
INSERT INTO chunk_embedding (tenant_id, knowledge_base_id, chunk_id, field, generation, embedding)
SELECT $1, $2, wanted.chunk_id, wanted.field, $7, cached.embedding
FROM unnest($4::uuid[], $5::text[], $6::bytea[]) AS wanted (chunk_id, field, text_sha256)
JOIN embedding_cache cached ON cached.model = $3 AND cached.text_sha256 = wanted.text_sha256;

-- name: delete_old_blobs
-- Forgets the bytes of all versions of a document ($1 tenant, $2 id) before this one ($3).
DELETE FROM document_blob WHERE tenant_id = $1 AND document_id = $2 AND version < $3;

-- name: find_cached
-- Which of these texts ($2) have a vector of this model ($1).
SELECT text_sha256 FROM embedding_cache WHERE model = $1 AND text_sha256 = ANY ($2::bytea[]);

-- name: cache_embeddings
-- Keeps vectors ($3) of a model ($1) by their texts ($2).
INSERT INTO embedding_cache (model, text_sha256, embedding)
SELECT $1, cached.text_sha256, cached.embedding FROM unnest($2::bytea[], $3::vector[]) AS cached (text_sha256, embedding)
ON CONFLICT DO NOTHING;

-- name: somebody_waits
-- Whether a run is being worked on: somebody waits for its answer.
SELECT EXISTS (SELECT FROM run WHERE status = 'running');

-- name: prune_cache
-- Forgets up to so many ($2) vectors that are older than this ($1 interval).
DELETE FROM embedding_cache WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM embedding_cache WHERE created_at < now() - $1::interval LIMIT $2));

-- name: requeue_abandoned_documents
-- Queues the documents again whose owner is gone: its lease has run out, or its advisory lock ($1, see shared/leases.py) is not in pg_locks any more. The
-- lock's absence counts only after the lease's first seconds ($2: the lease's length less these, an interval), so that a process that has just started, or
-- has lost its connection for a moment, keeps its work. The first time at once; a document that was abandoned before waits a random time within
-- 2^attempts seconds, at most $3.
-- And the documents that this process ($4, its owner's id) has and does not work on ($5: what it works on): the database went away in the middle of a
-- claim or of handing one back. That is no attempt.
WITH abandoned AS (
    SELECT tenant_id, id, lease_owner = $4 AS dropped FROM document
    WHERE state NOT IN ('ready', 'failed', 'queued') AND (
        lease_until < now()
        OR (lease_until < now() + $2::interval AND CASE WHEN lease_owner = $4 THEN id <> ALL ($5::uuid[]) ELSE NOT EXISTS (
            SELECT FROM pg_locks l
            WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
              AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
              AND l.classid::bigint = $1
              AND l.objid::bigint = hashtext(document.lease_owner::text)::bigint & 4294967295) -- an oid is unsigned, a hash is not
        END))
    LIMIT 100
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE document d SET
    state = 'queued', progress_done = 0, progress_total = 0, lease_owner = NULL, lease_until = NULL,
    attempts = greatest(attempts - dropped::integer, 0), deaths = deaths + 1 - dropped::integer,
    not_before = now() + CASE WHEN dropped OR attempts <= 1 THEN 0 ELSE random() * least(2 ^ attempts, $3::float8) END * interval '1 second'
FROM abandoned WHERE d.tenant_id = abandoned.tenant_id AND d.id = abandoned.id
RETURNING d.tenant_id, d.knowledge_base_id, d.id;
