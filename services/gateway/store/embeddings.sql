-- name: serving_model
-- The model that serves a knowledge base ($1 tenant, $2 id).
SELECT embedding_model FROM knowledge_base WHERE tenant_id = $1 AND id = $2;

-- name: has_documents
-- True when the knowledge base has a document. A statement of its own, for a snapshot that was taken under the base's lock.
SELECT EXISTS (SELECT FROM document WHERE tenant_id = $1 AND knowledge_base_id = $2);

-- name: set_embedding_model
-- Gives a knowledge base without documents ($1 tenant, $2 id) another model ($3).
UPDATE knowledge_base SET embedding_model = $3, updated_at = now() WHERE tenant_id = $1 AND id = $2;

-- name: find_generations
-- The generations beside the one that serves a knowledge base ($1 tenant, $2 id).
SELECT generation, model, state FROM embedding_generation
WHERE tenant_id = $1 AND knowledge_base_id = $2 AND state IN ('building', 'failed', 'kept') FOR UPDATE;

-- name: begin_generation
-- Has the chunks of a knowledge base ($1 tenant, $2 id) embedded by another model ($3), on behalf of a request ($4).
WITH numbered AS (
    UPDATE knowledge_base SET last_generation = last_generation + 1, updated_at = now() WHERE tenant_id = $1 AND id = $2
    RETURNING tenant_id, id, last_generation
)
INSERT INTO embedding_generation (tenant_id, knowledge_base_id, generation, model, state, request_id)
SELECT tenant_id, id, last_generation, $3, 'building', $4 FROM numbered;

-- name: resume_generation
-- Has a generation ($3) of a knowledge base ($1 tenant, $2 id) that has failed, or was kept, completed.
UPDATE embedding_generation SET
    state = 'building', error = NULL, lease_owner = NULL, lease_until = NULL, lease_epoch = lease_epoch + 1, attempts = 0, not_before = now(),
    request_id = $4, updated_at = now()
WHERE tenant_id = $1 AND knowledge_base_id = $2 AND generation = $3;
