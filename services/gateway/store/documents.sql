-- name: hold_knowledge_base
-- Keeps a knowledge base from being deleted until the commit. One row when the tenant has it.
SELECT id FROM knowledge_base WHERE tenant_id = $1 AND id = $2 FOR KEY SHARE;

-- name: add_document
-- Adds a queued document, unless its knowledge base ($3) has one with the same bytes. One row when it was added.
INSERT INTO document (tenant_id, id, knowledge_base_id, filename, media_type, size, sha256, request_id, tags, document_date)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (tenant_id, knowledge_base_id, sha256) DO NOTHING
RETURNING id;

-- name: hold_documents_by_content
-- The documents with some of these bytes ($3 SHA-256s), each looked up by itself, however many its knowledge base has. They stay, with their bytes, until
-- the commit; workers may change the rest. Documents are locked before their knowledge base, in the order in which all lock several.
SELECT id, sha256 FROM document
WHERE tenant_id = $1 AND knowledge_base_id = $2 AND sha256 = ANY ($3::bytea[]) AND id = ANY (ARRAY(
    SELECT found.id FROM unnest($3::bytea[]) AS wanted (sha256) CROSS JOIN LATERAL (
        SELECT id FROM document d
        WHERE d.tenant_id = $1 AND d.knowledge_base_id = $2 AND d.sha256 = wanted.sha256 LIMIT 1) AS found))
ORDER BY id FOR KEY SHARE;

-- name: add_blob_part
-- Stores one part ($4 number, $5 bytes) of a document's version ($3).
INSERT INTO document_blob (tenant_id, document_id, version, part, data) VALUES ($1, $2, $3, $4, $5);

-- name: delete_older_blobs
-- Forgets the bytes before a version ($3).
DELETE FROM document_blob WHERE tenant_id = $1 AND document_id = $2 AND version < $3;

-- name: read_document
-- A document as clients see it.
SELECT document_json(d)::text FROM document d WHERE tenant_id = $1 AND id = $2;

-- name: list_documents
-- A page of a knowledge base's documents, newest first, below an id ($3).
SELECT id, document_json(d)::text AS body FROM document d
WHERE tenant_id = $1 AND knowledge_base_id = $2 AND id < $3 ORDER BY id DESC LIMIT $4;

-- name: list_documents_in_state
-- The same of those in a state ($5).
SELECT id, document_json(d)::text AS body FROM document d
WHERE tenant_id = $1 AND knowledge_base_id = $2 AND id < $3 AND state = $5 ORDER BY id DESC LIMIT $4;

-- name: list_tagged_documents
-- The same of those that have all of some tags ($6), in a state ($5) or, for null, in any.
SELECT id, document_json(d)::text AS body FROM document d
WHERE tenant_id = $1 AND knowledge_base_id = $2 AND id < $3 AND ($5::text IS NULL OR state = $5) AND tags @> $6::text[] AND tags <> '{}'
ORDER BY id DESC LIMIT $4;

-- name: update_document
-- Changes the columns that $3 (an object by column name) holds; a document_date of null takes the date away. One row when the document exists.
UPDATE document d SET
    filename = coalesce(c.filename, d.filename), tags = coalesce(c.tags, d.tags),
    document_date = CASE WHEN $3::jsonb ? 'document_date' THEN c.document_date ELSE d.document_date END, updated_at = now()
FROM jsonb_to_record($3::jsonb) AS c (filename text, tags text[], document_date date)
WHERE d.tenant_id = $1 AND d.id = $2
RETURNING d.knowledge_base_id;

-- name: lock_document
-- A document, locked until the commit.
SELECT knowledge_base_id, sha256, version FROM document WHERE tenant_id = $1 AND id = $2 FOR UPDATE;

-- name: replace_content
-- Gives a document new bytes: the next version, queued. Whoever works on the old one is fenced out; its chunks serve on.
UPDATE document SET
    filename = $3, media_type = $4, size = $5, sha256 = $6, request_id = $7, version = version + 1,
    state = 'queued', progress_done = 0, progress_total = 0, error = NULL, waiting = NULL, lease_owner = NULL, lease_until = NULL,
    lease_epoch = lease_epoch + 1, attempts = 0, not_before = now(), updated_at = now()
WHERE tenant_id = $1 AND id = $2
RETURNING version;

-- name: requeue_failed_document
-- Queues a failed document again. One row when it had failed.
UPDATE document SET
    state = 'queued', progress_done = 0, progress_total = 0, error = NULL, lease_owner = NULL, lease_until = NULL,
    lease_epoch = lease_epoch + 1, attempts = 0, not_before = now(), updated_at = now(), request_id = $3
WHERE tenant_id = $1 AND id = $2 AND state = 'failed'
RETURNING knowledge_base_id;

-- name: requeue_failed_documents
-- Queues the failed documents of a knowledge base again, up to a limit ($3), on behalf of a request ($4). In the order in which all lock several.
WITH failed AS (
    SELECT id FROM document WHERE tenant_id = $1 AND knowledge_base_id = $2 AND state = 'failed' ORDER BY id LIMIT $3 FOR UPDATE
)
UPDATE document d SET
    state = 'queued', progress_done = 0, progress_total = 0, error = NULL, lease_owner = NULL, lease_until = NULL,
    lease_epoch = lease_epoch + 1, attempts = 0, not_before = now(), updated_at = now(), request_id = $4
FROM failed WHERE d.tenant_id = $1 AND d.id = failed.id
RETURNING d.id;

-- name: has_failed_documents
-- True when the knowledge base has a failed document.
SELECT EXISTS (SELECT FROM document WHERE tenant_id = $1 AND knowledge_base_id = $2 AND state = 'failed');

-- name: delete_document
-- Removes a document with its bytes and chunks.
DELETE FROM document WHERE tenant_id = $1 AND id = $2;

-- name: list_chunks
-- A page of what searches see of a document, above an ordinal ($3).
SELECT c.ordinal, chunk_json(c)::text AS body
FROM chunk c JOIN document d ON d.tenant_id = c.tenant_id AND d.id = c.document_id AND d.current_version = c.version
WHERE c.tenant_id = $1 AND c.document_id = $2 AND c.ordinal > $3 ORDER BY c.ordinal LIMIT $4;
