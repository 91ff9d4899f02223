-- name: describe_file
-- What a document ($2 id, $1 tenant) was uploaded as.
SELECT filename, media_type, size, sha256 FROM document WHERE tenant_id = $1 AND id = $2;

-- name: read_file_part
-- A part ($4) of a document's newest bytes, as long as they are these ($3 SHA-256): to read them again by other settings gives the same bytes another version.
SELECT b.data FROM document d JOIN document_blob b ON b.tenant_id = d.tenant_id AND b.document_id = d.id AND b.version = d.version
WHERE d.tenant_id = $1 AND d.id = $2 AND d.sha256 = $3 AND b.part = $4;

-- name: read_chunk
-- A chunk as searches see it.
SELECT chunk_json(c)::text FROM chunk c JOIN document d ON d.tenant_id = c.tenant_id AND d.id = c.document_id AND d.current_version = c.version
WHERE c.tenant_id = $1 AND c.id = $2;
