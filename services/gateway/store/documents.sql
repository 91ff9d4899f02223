-- name: hold_knowledge_base
-- Keeps a knowledge base from being deleted until the commit. One row when the tenant has it.
SELECT id FROM knowledge_base WHERE tenant_id = $1 AND id = $2 FOR KEY SHARE;

-- name: add_document
-- Adds a queued document, unless its knowledge base ($3) has one with the same bytes. One row when it was added.
INSERT INTO document (tenant_id, id, knowledge_base_id, filename, media_type, size, sha256, request_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (tenant_id, knowledge_base_id, sha256) DO NOTHING
RETURNING id;

-- name: find_document_by_content
-- The document with these bytes ($3 SHA-256).
SELECT id FROM document WHERE tenant_id = $1 AND knowledge_base_id = $2 AND sha256 = $3;

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

-- name: lock_document
-- A document, locked until the commit.
SELECT knowledge_base_id, sha256, version FROM document WHERE tenant_id = $1 AND id = $2 FOR UPDATE;

-- name: replace_content
-- Gives a document new bytes: the next version, queued. Whoever works on the old one is fenced out; its chunks serve on.
UPDATE document SET
    filename = $3, media_type = $4, size = $5, sha256 = $6, request_id = $7, version = version + 1,
    state = 'queued', progress_done = 0, progress_total = 0, error = NULL, lease_owner = NULL, lease_until = NULL,
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

-- name: find_failed_documents
-- The failed documents of a knowledge base, locked, up to a limit ($3).
SELECT id FROM document WHERE tenant_id = $1 AND knowledge_base_id = $2 AND state = 'failed' ORDER BY id LIMIT $3 FOR UPDATE;

-- name: delete_document
-- Removes a document with its bytes and chunks.
DELETE FROM document WHERE tenant_id = $1 AND id = $2;

-- name: list_chunks
-- A page of what searches see of a document, above an ordinal ($3).
SELECT c.ordinal, chunk_json(c)::text AS body
FROM chunk c JOIN document d ON d.tenant_id = c.tenant_id AND d.id = c.document_id AND d.current_version = c.version
WHERE c.tenant_id = $1 AND c.document_id = $2 AND c.ordinal > $3 ORDER BY c.ordinal LIMIT $4;
