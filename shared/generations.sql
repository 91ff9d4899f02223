-- name: lock_generations
-- Keeps everybody else from adding chunks to a knowledge base ($1) and from switching its embedding, until the commit.
SELECT pg_advisory_xact_lock(7306, hashtext($1::uuid::text));

-- name: lock_knowledge_base
-- The model and generation that serve a knowledge base ($1 tenant, $2 id), locked until the commit. A statement of its own, for a snapshot that was taken
-- under the lock before it.
SELECT embedding_model AS model, embedding_generation AS generation FROM knowledge_base WHERE tenant_id = $1 AND id = $2 FOR UPDATE;

-- name: is_complete
-- Whether a generation ($3) of a knowledge base ($1 id) has as many vectors as the one that serves ($2). That is all of them: no chunk has a vector of another
-- generation and none of the one that serves. Counted in the index, because uploads wait for it: to look for each vector's counterpart takes ten times as long.
SELECT (SELECT count(*) FROM chunk_embedding WHERE knowledge_base_id = $1 AND generation = $2)
     = (SELECT count(*) FROM chunk_embedding WHERE knowledge_base_id = $1 AND generation = $3);

-- name: discard_generations
-- Gives up the generations of a knowledge base ($1 tenant, $2 id) in a state ($3), except one ($4). Their vectors go after some seconds ($5 interval), when no
-- search can be reading them any more. A worker that builds one is fenced out.
UPDATE embedding_generation SET
    state = 'discarding', lease_owner = NULL, lease_until = NULL, lease_epoch = lease_epoch + 1, attempts = 0, not_before = now() + $5::interval,
    updated_at = now()
WHERE tenant_id = $1 AND knowledge_base_id = $2 AND state = $3 AND generation <> $4
RETURNING generation;

-- name: take_generation
-- Takes a generation ($3) of a knowledge base ($1 tenant, $2 id) out of those that don't serve; its model.
DELETE FROM embedding_generation WHERE tenant_id = $1 AND knowledge_base_id = $2 AND generation = $3 RETURNING model;

-- name: keep_generation
-- Keeps the generation that serves a knowledge base ($1 tenant, $2 id).
INSERT INTO embedding_generation (tenant_id, knowledge_base_id, generation, model, state)
SELECT tenant_id, id, embedding_generation, embedding_model, 'kept' FROM knowledge_base WHERE tenant_id = $1 AND id = $2;

-- name: serve_generation
-- Makes a generation ($3) and its model ($4) those that serve a knowledge base ($1 tenant, $2 id).
UPDATE knowledge_base SET embedding_generation = $3, embedding_model = $4, updated_at = now() WHERE tenant_id = $1 AND id = $2;

-- name: append_embedding_event
-- Appends the embedding of a knowledge base ($1 tenant, $2 id), as it is now in this transaction, to its log.
WITH log AS (
    UPDATE knowledge_base SET last_seq = last_seq + 1 WHERE tenant_id = $1 AND id = $2 RETURNING knowledge_base.*
)
INSERT INTO knowledge_base_event (tenant_id, knowledge_base_id, seq, type, payload)
SELECT log.tenant_id, log.id, log.last_seq, 'knowledge_base.embedding', json_build_object('embedding', embedding_json(log::knowledge_base)) FROM log
RETURNING seq, type, payload::text AS payload, created_at;
