-- Labels that searches and lists filter by; what could not be read of a document that is usable all the same; how often its worker died.

ALTER TABLE document
    ADD COLUMN tags text[] NOT NULL DEFAULT '{}',
    ADD COLUMN document_date date,
    ADD COLUMN warnings jsonb NOT NULL DEFAULT '[]', -- [{code, message}], of current_version
    ADD COLUMN deaths integer NOT NULL DEFAULT 0;    -- of workers that had it, since it was last ready
CREATE INDEX document_by_tag ON document USING gin (knowledge_base_id, tags) WHERE tags <> '{}'; -- a query says tags <> '{}' as well
CREATE INDEX document_by_state ON document (tenant_id, knowledge_base_id, state, id);

CREATE OR REPLACE FUNCTION document_json(d document) RETURNS json LANGUAGE sql STABLE AS $$
    SELECT json_build_object(
        'id', d.id, 'knowledge_base_id', d.knowledge_base_id, 'filename', d.filename, 'media_type', d.media_type, 'size', d.size,
        'sha256', encode(d.sha256, 'hex'), 'version', d.version, 'current_version', d.current_version, 'state', d.state,
        'progress', json_build_object('done', d.progress_done, 'total', d.progress_total), 'chunk_count', d.chunk_count,
        'tags', d.tags, 'date', d.document_date, 'warnings', d.warnings, 'error', d.error, 'created_at', d.created_at,
        'updated_at', d.updated_at)
$$;
