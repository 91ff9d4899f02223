-- The tables of architecture.md section 5. Every tenant-owned row carries tenant_id and its foreign keys include it, so that no row can
-- point across tenants. Text columns are `text`: limits are checked at the edge, with a clear error.

CREATE EXTENSION IF NOT EXISTS vector;
CREATE EXTENSION IF NOT EXISTS btree_gin; -- part of PostgreSQL's contrib; lets one index hold knowledge base and keywords

CREATE TABLE tenant (
    id         uuid PRIMARY KEY,
    name       text NOT NULL UNIQUE,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE api_key (
    id         uuid PRIMARY KEY,
    tenant_id  uuid NOT NULL REFERENCES tenant ON DELETE CASCADE,
    name       text NOT NULL,
    key_hash   bytea NOT NULL UNIQUE, -- SHA-256 of a 256-bit random key: nothing to brute-force, so no slow hash
    created_at timestamptz NOT NULL DEFAULT now(),
    revoked_at timestamptz
);

CREATE TABLE knowledge_base (
    tenant_id       uuid NOT NULL REFERENCES tenant ON DELETE CASCADE,
    id              uuid NOT NULL,
    name            text NOT NULL,
    description     text NOT NULL DEFAULT '',
    embedding_model text NOT NULL,
    settings        jsonb NOT NULL DEFAULT '{}',
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id)
);

CREATE TABLE agent (
    tenant_id     uuid NOT NULL REFERENCES tenant ON DELETE CASCADE,
    id            uuid NOT NULL,
    name          text NOT NULL,
    description   text NOT NULL DEFAULT '',
    system_prompt text NOT NULL DEFAULT '',
    model         text NOT NULL,
    tools         text[] NOT NULL DEFAULT '{}',
    options       jsonb NOT NULL DEFAULT '{}',
    max_steps     integer NOT NULL CHECK (max_steps > 0),
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now(),
    deleted_at    timestamptz, -- kept while sessions refer to it, so that their history stays readable
    PRIMARY KEY (tenant_id, id)
);

-- The grant: what an agent may read. Retrieval looks here and nowhere else.
CREATE TABLE agent_knowledge_base (
    tenant_id         uuid NOT NULL,
    agent_id          uuid NOT NULL,
    knowledge_base_id uuid NOT NULL,
    position          integer NOT NULL,
    PRIMARY KEY (tenant_id, agent_id, knowledge_base_id),
    FOREIGN KEY (tenant_id, agent_id) REFERENCES agent ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, knowledge_base_id) REFERENCES knowledge_base ON DELETE CASCADE
);
CREATE INDEX agent_knowledge_base_by_base ON agent_knowledge_base (tenant_id, knowledge_base_id);

CREATE TABLE chat_session (
    tenant_id   uuid NOT NULL REFERENCES tenant ON DELETE CASCADE,
    id          uuid NOT NULL,
    agent_id    uuid NOT NULL,
    title       text NOT NULL DEFAULT '',
    state       text NOT NULL DEFAULT 'IDLE',
    last_seq    bigint NOT NULL DEFAULT 0, -- seq of the newest session_event
    message_seq bigint NOT NULL DEFAULT 0, -- seq of the newest chat_message
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, agent_id) REFERENCES agent
) WITH (fillfactor = 70); -- updated by every event: room for HOT updates
CREATE INDEX chat_session_by_agent ON chat_session (tenant_id, agent_id, id);
CREATE UNIQUE INDEX chat_session_by_id ON chat_session (id); -- the streams' poll and the fenced commits know the id only

CREATE TABLE run (
    tenant_id           uuid NOT NULL,
    id                  uuid NOT NULL,
    session_id          uuid NOT NULL,
    seq                 bigint NOT NULL, -- order of acceptance in the session: the seq of the user's message
    status              text NOT NULL DEFAULT 'queued' CHECK (status IN ('queued', 'running', 'finished')), -- who is responsible
    state               text NOT NULL DEFAULT 'IDLE', -- what a client sees
    step                integer NOT NULL DEFAULT 0,   -- think steps begun
    reason              text CHECK (reason IN ('completed', 'step_limit', 'cancelled', 'budget', 'error')),
    error               jsonb,
    usage               jsonb NOT NULL DEFAULT '{"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}',
    lease_owner         uuid,
    lease_epoch         bigint NOT NULL DEFAULT 0,
    lease_until         timestamptz,
    not_before          timestamptz NOT NULL DEFAULT now(), -- of the next claim
    wake_at             timestamptz NOT NULL DEFAULT now() + interval '15 seconds', -- when a queued run gets another wake-up
    attempts            integer NOT NULL DEFAULT 0,         -- claims since the last committed step
    request_id          text,
    created_at          timestamptz NOT NULL DEFAULT now(),
    started_at          timestamptz,
    finished_at         timestamptz,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, session_id, seq),
    FOREIGN KEY (tenant_id, session_id) REFERENCES chat_session ON DELETE CASCADE,
    CHECK ((status = 'finished') = (reason IS NOT NULL)),
    CHECK ((status = 'running') = (lease_owner IS NOT NULL))
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX run_by_id ON run (id);
CREATE UNIQUE INDEX run_one_running_per_session ON run (session_id) WHERE status = 'running';
CREATE INDEX run_unfinished_by_session ON run (session_id, seq) WHERE status <> 'finished';
CREATE INDEX run_queued ON run (wake_at) WHERE status = 'queued';
CREATE INDEX run_running ON run (lease_until) WHERE status = 'running';

CREATE TABLE chat_message (
    tenant_id    uuid NOT NULL,
    id           uuid NOT NULL,
    session_id   uuid NOT NULL,
    run_id       uuid,
    seq          bigint NOT NULL, -- contiguous per session, in the order of appearance
    run_seq      bigint NOT NULL, -- of its run: with seq the order that a model reads, even where a message was posted during a run
    role         text NOT NULL CHECK (role IN ('user', 'assistant', 'tool')),
    content      text NOT NULL,
    tool_calls   jsonb NOT NULL DEFAULT '[]',
    tool_call_id text,
    tool_name    text,
    citations    jsonb NOT NULL DEFAULT '[]',
    usage        jsonb,
    model        text,
    metadata     jsonb NOT NULL DEFAULT '{}',
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, session_id, seq),
    FOREIGN KEY (tenant_id, session_id) REFERENCES chat_session ON DELETE CASCADE
);

CREATE INDEX chat_message_in_context ON chat_message (session_id, run_seq, seq);

-- The journal of a run. n counts its entries from 1: a think step, then one entry for each tool call of its reply, and so on; the
-- number of a step is known before it is taken, which is what makes taking it twice impossible.
CREATE TABLE run_step (
    tenant_id    uuid NOT NULL,
    run_id       uuid NOT NULL,
    n            integer NOT NULL,
    step         integer NOT NULL, -- the think step it belongs to, from 1
    kind         text NOT NULL CHECK (kind IN ('think', 'execute')),
    state        text NOT NULL CHECK (state IN ('done', 'failed')),
    message_id   uuid NOT NULL,    -- the message that holds its result
    tool_name    text,
    tool_call_id text,
    arguments    jsonb,
    error        jsonb,
    usage        jsonb,
    lease_epoch  bigint NOT NULL,
    started_at   timestamptz NOT NULL,
    finished_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, run_id, n),
    FOREIGN KEY (tenant_id, run_id) REFERENCES run ON DELETE CASCADE
);

-- payload is json, not jsonb: live delivery and every replay send the same bytes.
CREATE TABLE session_event (
    tenant_id  uuid NOT NULL,
    session_id uuid NOT NULL,
    seq        bigint NOT NULL,
    type       text NOT NULL,
    payload    json NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (session_id, seq),
    FOREIGN KEY (tenant_id, session_id) REFERENCES chat_session ON DELETE CASCADE
);

CREATE TABLE document (
    tenant_id         uuid NOT NULL,
    id                uuid NOT NULL,
    knowledge_base_id uuid NOT NULL,
    filename          text NOT NULL,
    media_type        text NOT NULL,
    size              bigint NOT NULL,
    sha256            bytea NOT NULL,
    version           integer NOT NULL DEFAULT 1, -- of the newest bytes
    current_version   integer,                    -- of the chunks that searches see; null until the first is ready
    state             text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'parsing', 'splitting', 'embedding', 'ready', 'failed')),
    progress_done     integer NOT NULL DEFAULT 0, -- chunks embedded
    progress_total    integer NOT NULL DEFAULT 0,
    chunk_count       integer NOT NULL DEFAULT 0, -- of current_version
    error             jsonb,
    lease_owner       uuid,
    lease_epoch       bigint NOT NULL DEFAULT 0,
    lease_until       timestamptz,
    not_before        timestamptz NOT NULL DEFAULT now(), -- of the next claim; the time of the last wake-up, once there was another
    attempts          integer NOT NULL DEFAULT 0,
    request_id        text,
    created_at        timestamptz NOT NULL DEFAULT now(),
    updated_at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, knowledge_base_id, sha256),
    FOREIGN KEY (tenant_id, knowledge_base_id) REFERENCES knowledge_base ON DELETE CASCADE
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX document_by_id ON document (id);
CREATE INDEX document_by_knowledge_base ON document (tenant_id, knowledge_base_id, id);
CREATE INDEX document_unfinished ON document (not_before) WHERE state NOT IN ('ready', 'failed');
CREATE INDEX document_failed ON document (tenant_id, knowledge_base_id, id) WHERE state = 'failed';

-- Documents of a knowledge base have their own contiguous event log, like sessions.
CREATE TABLE knowledge_base_event (
    tenant_id         uuid NOT NULL,
    knowledge_base_id uuid NOT NULL,
    seq               bigint NOT NULL,
    type              text NOT NULL,
    payload           json NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (knowledge_base_id, seq),
    FOREIGN KEY (tenant_id, knowledge_base_id) REFERENCES knowledge_base ON DELETE CASCADE
);
ALTER TABLE knowledge_base ADD COLUMN last_seq bigint NOT NULL DEFAULT 0; -- seq of the newest knowledge_base_event
CREATE UNIQUE INDEX knowledge_base_by_id ON knowledge_base (id);

-- The bytes, in parts of bounded size so that neither side holds a whole file.
CREATE TABLE document_blob (
    tenant_id   uuid NOT NULL,
    document_id uuid NOT NULL,
    version     integer NOT NULL,
    part        integer NOT NULL,
    data        bytea NOT NULL,
    PRIMARY KEY (tenant_id, document_id, version, part),
    FOREIGN KEY (tenant_id, document_id) REFERENCES document ON DELETE CASCADE
);
ALTER TABLE document_blob ALTER COLUMN data SET STORAGE EXTERNAL; -- files are mostly compressed already

-- What stands here is searchable: ingestion inserts a version's chunks and deletes the old ones in one transaction.
CREATE TABLE chunk (
    tenant_id         uuid NOT NULL,
    id                uuid NOT NULL,
    knowledge_base_id uuid NOT NULL,
    document_id       uuid NOT NULL,
    version           integer NOT NULL,
    ordinal           integer NOT NULL,
    title             text NOT NULL,
    heading_path      text[] NOT NULL,
    content           text NOT NULL,
    kind              text NOT NULL DEFAULT 'original' CHECK (kind IN ('original', 'summary')),
    char_start        integer NOT NULL, -- offsets in the document's normalised text
    char_end          integer NOT NULL,
    keywords          tsvector NOT NULL, -- shared.keywords.index_terms of title and content, frequency as positions
    keyword_count     integer NOT NULL,  -- all terms with repetition: the length in BM25
    metadata          jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, document_id) REFERENCES document ON DELETE CASCADE,
    UNIQUE (tenant_id, document_id, version, ordinal)
);
CREATE UNIQUE INDEX chunk_by_id ON chunk (id);
CREATE INDEX chunk_by_knowledge_base ON chunk (knowledge_base_id) INCLUDE (keyword_count); -- counts and mean length for BM25
CREATE INDEX chunk_keywords ON chunk USING gin (knowledge_base_id, keywords);

-- Narrow and apart from the text, so that an exact search reads vectors and nothing else. The dimension belongs to the knowledge
-- base's embedding model, not to the column. MAIN keeps vectors in the row: out of line, exact scans take 2.5 to 3 times as long.
CREATE TABLE chunk_embedding (
    tenant_id         uuid NOT NULL,
    knowledge_base_id uuid NOT NULL,
    chunk_id          uuid NOT NULL,
    field             text NOT NULL CHECK (field IN ('title', 'body')),
    embedding         vector NOT NULL,
    PRIMARY KEY (chunk_id, field),
    FOREIGN KEY (tenant_id, chunk_id) REFERENCES chunk ON DELETE CASCADE
);
ALTER TABLE chunk_embedding ALTER COLUMN embedding SET STORAGE MAIN;
CREATE INDEX chunk_embedding_by_knowledge_base ON chunk_embedding (knowledge_base_id);

-- Embeddings by what was embedded: ingestion resumes at the batch, and the same text is never paid for twice.
CREATE TABLE embedding_cache (
    model       text NOT NULL,
    text_sha256 bytea NOT NULL,
    embedding   vector NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (model, text_sha256)
);
CREATE INDEX embedding_cache_by_age ON embedding_cache (created_at);

CREATE TABLE outbox (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind       text NOT NULL,  -- the message class, see shared.contracts
    subject_id uuid NOT NULL,  -- the run or document it wakes
    body       json NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX outbox_by_subject ON outbox (subject_id);

CREATE TABLE idempotency_key (
    tenant_id   uuid NOT NULL REFERENCES tenant ON DELETE CASCADE,
    key         text NOT NULL,
    fingerprint bytea NOT NULL, -- SHA-256 of method, path and body
    status      integer NOT NULL,
    response    json NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, key)
);
CREATE INDEX idempotency_key_by_age ON idempotency_key (created_at);

-- How a message looks to clients, in events and in lists alike.
CREATE FUNCTION message_json(m chat_message) RETURNS json LANGUAGE sql STABLE AS $$
    SELECT json_build_object(
        'id', m.id, 'session_id', m.session_id, 'run_id', m.run_id, 'seq', m.seq, 'role', m.role, 'content', m.content,
        'tool_calls', m.tool_calls, 'tool_call_id', m.tool_call_id, 'tool_name', m.tool_name, 'citations', m.citations,
        'usage', m.usage, 'model', m.model, 'metadata', m.metadata, 'created_at', m.created_at)
$$;
