-- Chunks that are searched apart from the text that is returned for them. Children are of their parent's document.
CREATE TABLE chunk_parent (
    tenant_id         uuid NOT NULL,
    id                uuid NOT NULL,
    knowledge_base_id uuid NOT NULL,
    document_id       uuid NOT NULL,
    version           integer NOT NULL,
    ordinal           integer NOT NULL, -- counts from 0 in the document
    title             text NOT NULL,
    heading_path      text[] NOT NULL,
    content           text NOT NULL,
    char_start        integer NOT NULL, -- offsets in the document's normalised text
    char_end          integer NOT NULL,
    header_chars      integer NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, knowledge_base_id, document_id) REFERENCES document (tenant_id, knowledge_base_id, id) ON DELETE CASCADE,
    UNIQUE (tenant_id, document_id, id),
    UNIQUE (tenant_id, document_id, version, ordinal)
);

-- The rows of a table that was cut are read with its header before them: so many characters of the content, which char_start is behind.
ALTER TABLE chunk
    ADD COLUMN header_chars integer NOT NULL DEFAULT 0,
    ADD COLUMN parent_id uuid,
    ADD FOREIGN KEY (tenant_id, document_id, parent_id) REFERENCES chunk_parent (tenant_id, document_id, id) ON DELETE CASCADE;
CREATE INDEX chunk_by_parent ON chunk (parent_id) WHERE parent_id IS NOT NULL;

CREATE OR REPLACE FUNCTION chunk_json(c chunk) RETURNS json LANGUAGE sql STABLE AS $$
    SELECT json_build_object(
        'id', c.id, 'document_id', c.document_id, 'version', c.version, 'ordinal', c.ordinal, 'parent_id', c.parent_id, 'title', c.title,
        'heading_path', c.heading_path, 'content', c.content, 'kind', c.kind, 'char_start', c.char_start, 'char_end', c.char_end,
        'header_chars', c.header_chars, 'metadata', c.metadata)
$$;
