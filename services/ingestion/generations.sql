-- name: claim_generations
-- Takes up to $3 generations that are to be built or discarded for an owner ($1) until the lease ($2 interval) runs out, without those of some tenants ($4). Those
-- that nobody holds, or whose owner is gone: its lease has run out, or its advisory lock ($5, see shared/leases.py) is not in pg_locks any more, which counts
-- after the lease's first seconds ($6: what is left of it then). And those that this owner has and does not work on ($7: what it works on).
WITH next AS (
    SELECT id FROM embedding_generation g
    WHERE state IN ('building', 'discarding') AND not_before <= now() AND tenant_id <> ALL ($4::uuid[]) AND (
        lease_until IS NULL OR lease_until < now()
        OR (lease_until < now() + $6::interval AND CASE WHEN lease_owner = $1 THEN id <> ALL ($7::uuid[]) ELSE NOT EXISTS (
            SELECT FROM pg_locks l
            WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
              AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
              AND l.classid::bigint = $5
              AND l.objid::bigint = hashtext(g.lease_owner::text)::bigint & 4294967295) -- an oid is unsigned, a hash is not
        END))
    ORDER BY state, not_before LIMIT $3
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE embedding_generation g SET
    lease_owner = $1, lease_epoch = g.lease_epoch + 1, lease_until = now() + $2::interval, attempts = g.attempts + 1
FROM next, knowledge_base k
WHERE g.id = next.id AND k.tenant_id = g.tenant_id AND k.id = g.knowledge_base_id
RETURNING g.tenant_id, g.knowledge_base_id, g.generation, g.id, g.model, g.state, g.lease_epoch AS epoch, g.attempts, g.request_id,
          k.embedding_generation AS serving;

-- name: renew_generation_leases
-- Extends the leases ($3 interval) of an owner ($2) on generations ($1) and returns the ids that are still the owner's. A row that is locked is not waited for.
WITH free AS (
    SELECT id FROM embedding_generation WHERE id = ANY ($1::uuid[]) AND lease_owner = $2 FOR NO KEY UPDATE SKIP LOCKED
), renewed AS (
    UPDATE embedding_generation g SET lease_until = now() + $3::interval FROM free WHERE g.id = free.id
)
SELECT id FROM embedding_generation WHERE id = ANY ($1::uuid[]) AND lease_owner = $2;

-- name: generation_is_held
-- Whether the lease on a generation ($1 id, $2 epoch) stands.
SELECT EXISTS (SELECT FROM embedding_generation WHERE id = $1 AND lease_epoch = $2);

-- name: hold_generation
-- Keeps the lease on a generation ($1 id, $2 epoch) until the commit. No row when it is lost.
SELECT id FROM embedding_generation WHERE id = $1 AND lease_epoch = $2 FOR SHARE;

-- name: lock_base
-- Locks a knowledge base ($1 tenant, $2 id) before its generations, in the order of all who lock both.
SELECT FROM knowledge_base WHERE tenant_id = $1 AND id = $2 FOR NO KEY UPDATE;

-- name: count_chunks
-- How many chunks the documents of a knowledge base ($1 tenant, $2 id) have.
SELECT coalesce(sum(chunk_count), 0)::integer FROM document WHERE tenant_id = $1 AND knowledge_base_id = $2;

-- name: next_documents
-- Documents of a knowledge base ($1 tenant, $2 id) above an id ($3) that searches see, with their number of chunks, up to $4.
SELECT id, chunk_count FROM document
WHERE tenant_id = $1 AND knowledge_base_id = $2 AND id > $3 AND current_version IS NOT NULL ORDER BY id LIMIT $4;

-- name: find_missing_vectors
-- What chunks of documents ($2) of a tenant ($1) have in the generation that serves ($3) and not in another one ($4), with what its text is made of. Chunk by
-- chunk: "OFFSET 0" keeps the planner from reading all vectors of a large base for some of its documents.
SELECT c.id AS chunk_id, serving.field, c.title, c.heading_path, c.content
FROM chunk c CROSS JOIN LATERAL (
    SELECT field FROM chunk_embedding WHERE chunk_id = c.id AND generation = $3 OFFSET 0
) AS serving
WHERE c.tenant_id = $1 AND c.document_id = ANY ($2::uuid[]) AND NOT EXISTS (
    SELECT FROM chunk_embedding WHERE chunk_id = c.id AND generation = $4 AND field = serving.field OFFSET 0)
ORDER BY c.document_id, c.ordinal, serving.field;

-- name: lacks_nothing
-- Whether each vector that a knowledge base ($1 id) has in the generation that serves ($2) has its counterpart in another one ($3). Counted, so that the planner
-- doesn't hope for an early end of a scan of all bases.
SELECT count(*) = 0 FROM chunk_embedding serving
WHERE knowledge_base_id = $1 AND generation = $2 AND NOT EXISTS (
    SELECT FROM chunk_embedding other WHERE other.chunk_id = serving.chunk_id AND other.field = serving.field AND other.generation = $3 OFFSET 0);

-- name: lock_free_documents
-- Keeps those of some documents ($2) of a tenant ($1) from changing that nobody is changing at this moment.
SELECT id FROM document WHERE tenant_id = $1 AND id = ANY ($2::uuid[]) FOR SHARE SKIP LOCKED;

-- name: add_missing_vectors
-- Gives chunks ($5, one entry a vector) of locked documents ($4) of a knowledge base ($1 tenant, $2 id) their vectors of a generation ($3) for fields ($6) from the
-- cache, by model ($7) and text ($8). Chunks that are gone, and vectors that are there, are left out.
INSERT INTO chunk_embedding (tenant_id, knowledge_base_id, chunk_id, field, generation, embedding)
SELECT $1, $2, wanted.chunk_id, wanted.field, $3, cached.embedding
FROM unnest($5::uuid[], $6::text[], $8::bytea[]) AS wanted (chunk_id, field, text_sha256)
JOIN chunk ON chunk.tenant_id = $1 AND chunk.id = wanted.chunk_id AND chunk.document_id = ANY ($4::uuid[])
JOIN embedding_cache cached ON cached.model = $7 AND cached.text_sha256 = wanted.text_sha256
ON CONFLICT (chunk_id, generation, field) DO NOTHING;

-- name: register_generation
-- Gives a generation ($3) of a knowledge base ($1 tenant, $2 id) with more than so many vectors ($4) an index, to be built.
INSERT INTO vector_index (tenant_id, knowledge_base_id, generation)
SELECT $1, $2, $3
WHERE EXISTS (SELECT FROM chunk_embedding WHERE knowledge_base_id = $2 AND generation = $3 OFFSET $4)
ON CONFLICT DO NOTHING;

-- name: index_state
-- How far the index of a generation ($2) of a knowledge base ($1) is. It is ready when a search would use it, with so many pending vectors ($3) at most.
SELECT coalesce((
    SELECT CASE
        WHEN relation IS NOT NULL AND $3::bigint >= (
            SELECT count(*) FROM (SELECT FROM vector_pending WHERE knowledge_base_id = $1 AND generation = $2 LIMIT $3::bigint + 1) AS pending) THEN 'ready'
        WHEN not_before > now() OR (relation IS NULL AND NOT due) THEN 'failed' -- put off after an error, or more dimensions than an index can take
        ELSE 'building'
    END
    FROM vector_index WHERE knowledge_base_id = $1 AND generation = $2
), 'unneeded');

-- name: advance_generation
-- Says how far a generation ($1 id, $2 epoch) is: $3 of $4 chunks. Its attempts count from the start again when this one has got further ($5). No row when the
-- lease is lost.
UPDATE embedding_generation SET done = $3, total = $4, attempts = CASE WHEN $5::boolean THEN 0 ELSE attempts END
WHERE id = $1 AND lease_epoch = $2 RETURNING id;

-- name: fail_generation
-- Ends the building of a generation ($1 id, $2 epoch) with an error ($3). No row when the lease is lost.
UPDATE embedding_generation SET state = 'failed', error = $3, lease_owner = NULL, lease_until = NULL, updated_at = now()
WHERE id = $1 AND lease_epoch = $2 RETURNING id;

-- name: delay_generation
-- Puts a generation ($1 id, $2 epoch) back for later: at a random moment within 2^attempts seconds, at most $3; one that is built fails with an error ($5) after
-- so many attempts ($4). No row when the lease is lost.
UPDATE embedding_generation SET
    state = CASE WHEN attempts < $4 OR state <> 'building' THEN state ELSE 'failed' END,
    error = CASE WHEN attempts < $4 OR state <> 'building' THEN NULL ELSE $5::jsonb END,
    lease_owner = NULL,
    lease_until = NULL,
    not_before = now() + random() * least(2 ^ least(attempts, 30), $3::float8) * interval '1 second',
    updated_at = now()
WHERE id = $1 AND lease_epoch = $2
RETURNING state;

-- name: hand_back_generation
-- Puts a generation ($1 id, $2 epoch) back for now, as if this claim had not been. No row when the lease is lost.
UPDATE embedding_generation SET lease_owner = NULL, lease_until = NULL, attempts = greatest(attempts - 1, 0)
WHERE id = $1 AND lease_epoch = $2 RETURNING id;

-- name: delete_vectors
-- Removes the vectors of up to $3 chunks of a generation ($2) of a knowledge base ($1).
DELETE FROM chunk_embedding WHERE generation = $2 AND chunk_id = ANY (ARRAY(
    SELECT chunk_id FROM chunk_embedding WHERE knowledge_base_id = $1 AND generation = $2 LIMIT $3));

-- name: forget_generation
-- Removes a generation ($1 id, $2 epoch) that has no vectors any more. No row when the lease is lost.
DELETE FROM embedding_generation WHERE id = $1 AND lease_epoch = $2 RETURNING id;

-- name: find_outdated_generations
-- Up to 100 knowledge bases with a generation that was kept, or that has failed, longer ago than this ($1 interval).
SELECT DISTINCT tenant_id, knowledge_base_id FROM embedding_generation
WHERE state IN ('kept', 'failed') AND updated_at < now() - $1::interval LIMIT 100;

-- name: discard_outdated_generations
-- Gives up the generations of a knowledge base ($1 tenant, $2 id) that were kept, or have failed, longer ago than this ($3 interval).
UPDATE embedding_generation SET state = 'discarding', attempts = 0, not_before = now(), updated_at = now()
WHERE tenant_id = $1 AND knowledge_base_id = $2 AND state IN ('kept', 'failed') AND updated_at < now() - $3::interval
RETURNING generation;
