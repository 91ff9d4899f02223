-- Several embeddings of a knowledge base side by side: the one that serves, and the next or the previous one.
--
-- A generation is one embedding of all chunks of a base by one model. knowledge_base.embedding_generation serves, and embedding_model is its
-- model; the others have a row in embedding_generation. Locks are taken in the order: pg_advisory_xact_lock(7306, hashtext(base's id))
-- (shared by who adds chunks, exclusive by who switches), document, knowledge_base, embedding_generation. A claim locks the last alone.

ALTER TABLE knowledge_base
    ADD COLUMN embedding_generation integer NOT NULL DEFAULT 1, -- the one that searches read
    ADD COLUMN last_generation integer NOT NULL DEFAULT 1;      -- the newest one's number: none is given twice

CREATE TABLE embedding_generation (
    tenant_id         uuid NOT NULL,
    knowledge_base_id uuid NOT NULL,
    generation        integer NOT NULL,
    id                uuid NOT NULL DEFAULT gen_random_uuid(), -- of the job that builds or discards it
    model             text NOT NULL,
    state             text NOT NULL CHECK (state IN ('building', 'failed', 'kept', 'discarding')),
    done              integer NOT NULL DEFAULT 0, -- chunks
    total             integer NOT NULL DEFAULT 0,
    error             jsonb,
    lease_owner       uuid,
    lease_epoch       bigint NOT NULL DEFAULT 0,
    lease_until       timestamptz,
    not_before        timestamptz NOT NULL DEFAULT now(),
    attempts          integer NOT NULL DEFAULT 0,
    request_id        text,
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now(), -- of its state
    PRIMARY KEY (tenant_id, knowledge_base_id, generation),
    FOREIGN KEY (tenant_id, knowledge_base_id) REFERENCES knowledge_base ON DELETE CASCADE
);
CREATE UNIQUE INDEX embedding_generation_by_id ON embedding_generation (id);
CREATE UNIQUE INDEX embedding_generation_next ON embedding_generation (knowledge_base_id) WHERE state IN ('building', 'failed');
CREATE UNIQUE INDEX embedding_generation_kept ON embedding_generation (knowledge_base_id) WHERE state = 'kept';
CREATE INDEX embedding_generation_due ON embedding_generation (not_before) WHERE state IN ('building', 'discarding');

-- All rows that stand are the first generation's. A scan of one generation reads no row of another.
ALTER TABLE chunk_embedding ADD COLUMN generation integer NOT NULL DEFAULT 1;
ALTER TABLE chunk_embedding DROP CONSTRAINT chunk_embedding_pkey, ADD PRIMARY KEY (chunk_id, generation, field);
CREATE INDEX chunk_embedding_by_generation ON chunk_embedding (knowledge_base_id, generation);
DROP INDEX chunk_embedding_by_knowledge_base;

-- Who names no generation, as the previous release, means the one that serves.
ALTER TABLE chunk_embedding ALTER COLUMN generation SET DEFAULT 0;
CREATE FUNCTION name_generation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.generation := (SELECT embedding_generation FROM knowledge_base WHERE id = NEW.knowledge_base_id);
    RETURN NEW;
END
$$;
CREATE TRIGGER name_generation BEFORE INSERT ON chunk_embedding FOR EACH ROW WHEN (NEW.generation = 0) EXECUTE FUNCTION name_generation();

-- How a base's embedding looks to clients.
CREATE FUNCTION embedding_json(k knowledge_base) RETURNS json LANGUAGE sql STABLE AS $$
    SELECT json_build_object(
        'model', k.embedding_model, 'generation', k.embedding_generation, 'state', coalesce(next.state, 'ready'),
        'next', CASE WHEN next.generation IS NOT NULL THEN json_build_object(
            'model', next.model, 'generation', next.generation, 'state', next.state, 'done', next.done, 'total', next.total,
            'error', next.error, 'created_at', next.created_at) END,
        'previous', CASE WHEN kept.generation IS NOT NULL THEN json_build_object(
            'model', kept.model, 'generation', kept.generation, 'replaced_at', kept.updated_at) END)
    FROM (SELECT) AS one
    LEFT JOIN embedding_generation AS next
        ON next.tenant_id = k.tenant_id AND next.knowledge_base_id = k.id AND next.state IN ('building', 'failed')
    LEFT JOIN embedding_generation AS kept
        ON kept.tenant_id = k.tenant_id AND kept.knowledge_base_id = k.id AND kept.state = 'kept'
$$;

CREATE OR REPLACE FUNCTION knowledge_base_json(k knowledge_base) RETURNS json LANGUAGE sql STABLE AS $$
    SELECT json_build_object(
        'id', k.id, 'name', k.name, 'description', k.description, 'embedding_model', k.embedding_model, 'embedding', embedding_json(k),
        'settings', k.settings, 'last_seq', k.last_seq, 'created_at', k.created_at, 'updated_at', k.updated_at)
$$;

-- A generation that is due waits for a slot while another one is worked on, and is forgotten where none is.
ALTER VIEW stuck RENAME TO stuck_work;
CREATE VIEW stuck (kind, tenant_id, id, state, since, reason) AS
SELECT kind, tenant_id, id, state, since, reason FROM stuck_work
UNION ALL
SELECT 'embedding', tenant_id, id, state, greatest(not_before, updated_at, lease_until), 'unclaimed' FROM embedding_generation
WHERE state IN ('building', 'discarding') AND greatest(not_before, updated_at, lease_until) < now() - interval '15 seconds'
  AND NOT EXISTS (SELECT FROM embedding_generation other WHERE other.lease_until > now());
