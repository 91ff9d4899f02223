-- name: create_knowledge_base
-- Adds a knowledge base: $1 tenant, $2 id, then its columns.
INSERT INTO knowledge_base (tenant_id, id, name, description, embedding_model, settings) VALUES ($1, $2, $3, $4, $5, $6)
RETURNING knowledge_base_json(knowledge_base)::text;

-- name: read_knowledge_base
-- A knowledge base as clients see it.
SELECT knowledge_base_json(k)::text FROM knowledge_base k WHERE tenant_id = $1 AND id = $2;

-- name: list_knowledge_bases
-- A page of knowledge bases, newest first, below an id ($2).
SELECT id, knowledge_base_json(k)::text AS body FROM knowledge_base k WHERE tenant_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3;

-- name: update_knowledge_base
-- Changes the columns that $3 (an object by column name) holds.
UPDATE knowledge_base k SET
    name = coalesce(c.name, k.name), description = coalesce(c.description, k.description),
    settings = coalesce(c.settings, k.settings), updated_at = now()
FROM jsonb_to_record($3::jsonb) AS c (name text, description text, settings jsonb)
WHERE k.tenant_id = $1 AND k.id = $2
RETURNING knowledge_base_json(k)::text;

-- name: lock_documents_of_knowledge_base
-- Locks all documents of a knowledge base: documents are locked before it.
SELECT count(*) FROM (SELECT FROM document WHERE tenant_id = $1 AND knowledge_base_id = $2 ORDER BY id FOR UPDATE) locked;

-- name: delete_knowledge_base
-- Removes a knowledge base with its documents, chunks, events and grants. One row when it existed.
DELETE FROM knowledge_base WHERE tenant_id = $1 AND id = $2 RETURNING id;

-- name: knowledge_base_exists
-- True when the tenant has the knowledge base.
SELECT EXISTS (SELECT FROM knowledge_base WHERE tenant_id = $1 AND id = $2);
