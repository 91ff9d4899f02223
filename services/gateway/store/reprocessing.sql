-- name: find_documents
-- The next documents of a knowledge base above an id ($3), in order.
SELECT id FROM document WHERE tenant_id = $1 AND knowledge_base_id = $2 AND id > $3 ORDER BY id LIMIT $4;

-- name: find_missing
-- Which of these ids ($3) are not of documents of the knowledge base.
SELECT wanted.id FROM unnest($3::uuid[]) AS wanted (id)
WHERE NOT EXISTS (SELECT FROM document d WHERE d.tenant_id = $1 AND d.knowledge_base_id = $2 AND d.id = wanted.id);

-- name: lock_documents
-- The states of those of some documents ($3) that a knowledge base ($2) has, which stay until the commit; in the order in which all lock several. Those that
-- wait are locked as well: a worker may be claiming one, with the settings of a moment ago. A statement of its own: what was changed while it waited is
-- seen by the next one only.
SELECT id, state FROM document WHERE tenant_id = $1 AND knowledge_base_id = $2 AND id = ANY ($3::uuid[]) ORDER BY id FOR UPDATE;

-- name: reprocess_documents
-- Queues locked documents ($2) to be read again, on behalf of a request ($3): the next version of each, with the bytes of the one before. Whoever works
-- on the old one is fenced out; its chunks serve on. The bytes themselves are not written again, as they lie out of line.
WITH moved AS (
    UPDATE document_blob b SET version = d.version + 1 FROM document d
    WHERE d.tenant_id = $1 AND d.id = ANY ($2::uuid[]) AND b.tenant_id = $1 AND b.document_id = d.id AND b.version = d.version
)
UPDATE document SET
    version = version + 1, state = 'queued', progress_done = 0, progress_total = 0, error = NULL, waiting = NULL, lease_owner = NULL,
    lease_until = NULL, lease_epoch = lease_epoch + 1, attempts = 0, not_before = now(), updated_at = now(), request_id = $3
WHERE tenant_id = $1 AND id = ANY ($2::uuid[]);
