-- The first and the last page (or slide) of the text, counting from 1; null where the format has none, and for chunks of the previous release.
ALTER TABLE chunk ADD COLUMN page_first integer, ADD COLUMN page_last integer;
ALTER TABLE chunk_parent ADD COLUMN page_first integer, ADD COLUMN page_last integer;

CREATE OR REPLACE FUNCTION chunk_json(c chunk) RETURNS json LANGUAGE sql STABLE AS $$
    SELECT json_build_object(
        'id', c.id, 'document_id', c.document_id, 'version', c.version, 'ordinal', c.ordinal, 'parent_id', c.parent_id, 'title', c.title,
        'heading_path', c.heading_path, 'content', c.content, 'kind', c.kind, 'char_start', c.char_start, 'char_end', c.char_end,
        'header_chars', c.header_chars, 'page_first', c.page_first, 'page_last', c.page_last, 'metadata', c.metadata)
$$;

-- Why a document that is still to be ingested isn't going on, and since when: {code, message, since}. Those who are of the previous release leave it as it
-- is, so that it is shown only as long as it can be true.
ALTER TABLE document ADD COLUMN waiting jsonb;

CREATE OR REPLACE FUNCTION document_json(d document) RETURNS json LANGUAGE sql STABLE AS $$
    SELECT json_build_object(
        'id', d.id, 'knowledge_base_id', d.knowledge_base_id, 'filename', d.filename, 'media_type', d.media_type, 'size', d.size,
        'sha256', encode(d.sha256, 'hex'), 'version', d.version, 'current_version', d.current_version, 'state', d.state,
        'progress', json_build_object('done', d.progress_done, 'total', d.progress_total), 'chunk_count', d.chunk_count,
        'tags', d.tags, 'date', d.document_date, 'warnings', d.warnings, 'error', d.error,
        'waiting', CASE WHEN d.state NOT IN ('ready', 'failed') THEN d.waiting END, 'created_at', d.created_at, 'updated_at', d.updated_at)
$$;
