-- How a document looks to clients, in events, in lists and in answers alike. Lease and retry columns are nobody's business.
CREATE FUNCTION document_json(d document) RETURNS json LANGUAGE sql STABLE AS $$
    SELECT json_build_object(
        'id', d.id, 'knowledge_base_id', d.knowledge_base_id, 'filename', d.filename, 'media_type', d.media_type, 'size', d.size,
        'sha256', encode(d.sha256, 'hex'), 'version', d.version, 'current_version', d.current_version, 'state', d.state,
        'progress', json_build_object('done', d.progress_done, 'total', d.progress_total), 'chunk_count', d.chunk_count,
        'error', d.error, 'created_at', d.created_at, 'updated_at', d.updated_at)
$$;

-- Admission: how many runs a tenant has waiting or working.
CREATE INDEX run_unfinished_by_tenant ON run (tenant_id) WHERE status <> 'finished';
