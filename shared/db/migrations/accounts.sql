-- What each service may do in the database. The migrator runs this after every migration, in the same transaction, on databases that have
-- the roles. A right that no statement of the service needs, or a statement without its right, fails
-- tests/integration/accounts. `UPDATE (id)` of a generated id lets a service lock rows and change nothing.

-- section: present
SELECT rolname FROM pg_roles WHERE rolname LIKE 'chatmind\_%';

-- section: revoke
-- The ground to build on: nobody but the owner may do anything.
DO $$
DECLARE
    service record;
    own record;
BEGIN
    EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
    REVOKE ALL ON SCHEMA public FROM PUBLIC;
    FOR own IN SELECT oid::regprocedure AS name FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND proowner = current_user::regrole LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', own.name);
    END LOOP;
    -- Triggers keep the schema's own books, whoever writes: they may read what the writer may not.
    FOR own IN SELECT oid::regprocedure AS name FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace AND proowner = current_user::regrole AND prorettype = 'trigger'::regtype LOOP
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER SET search_path = public, pg_temp', own.name);
    END LOOP;
    FOR service IN SELECT rolname AS name FROM pg_roles WHERE rolname IN (
        'chatmind_gateway', 'chatmind_agent_runner', 'chatmind_ingestion', 'chatmind_retrieval') LOOP
        EXECUTE format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), service.name);
        EXECUTE format('GRANT USAGE ON SCHEMA public TO %I', service.name);
        EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA public FROM %I', service.name);
        FOR own IN SELECT oid::regprocedure AS name FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND proowner = current_user::regrole LOOP
            EXECUTE format('REVOKE ALL ON FUNCTION %s FROM %I', own.name, service.name);
        END LOOP;
    END LOOP;
END
$$;

-- section: gateway
-- Reads and writes what its API shows; queues work. Issues keys as well: `python -m services.gateway.admin` runs in its place.
GRANT SELECT,
    INSERT (tenant_id, id, name, description, system_prompt, model, tools, options, max_steps, knowledge),
    UPDATE (name, description, system_prompt, model, tools, options, max_steps, updated_at, deleted_at, knowledge) ON agent TO chatmind_gateway;
GRANT EXECUTE ON FUNCTION agent_json(agent) TO chatmind_gateway;
GRANT SELECT, INSERT, DELETE ON agent_knowledge_base TO chatmind_gateway;
GRANT EXECUTE ON FUNCTION announce_positions(uuid,bigint) TO chatmind_gateway;
GRANT SELECT (id, tenant_id, name, key_hash, revoked_at, expires_at),
    INSERT (id, tenant_id, name, key_hash, expires_at),
    UPDATE (revoked_at) ON api_key TO chatmind_gateway;
GRANT SELECT,
    INSERT (tenant_id, id, session_id, run_id, seq, run_seq, role, content, tool_calls, tool_call_id, tool_name, citations, usage, model,
        metadata),
    UPDATE (metadata) ON chat_message TO chatmind_gateway;
GRANT SELECT,
    INSERT (tenant_id, id, agent_id, title),
    UPDATE (title, state, last_seq, message_seq, updated_at),
    DELETE ON chat_session TO chatmind_gateway;
GRANT SELECT ON chunk TO chatmind_gateway;
GRANT EXECUTE ON FUNCTION chunk_json(chunk) TO chatmind_gateway;
GRANT SELECT,
    INSERT (tenant_id, id, knowledge_base_id, filename, media_type, size, sha256, request_id, tags, document_date),
    UPDATE (filename, media_type, size, sha256, version, state, progress_done, progress_total, error, lease_owner, lease_epoch,
        lease_until, not_before, attempts, request_id, updated_at, tags, document_date, waiting),
    DELETE ON document TO chatmind_gateway;
GRANT SELECT, INSERT, UPDATE (version), DELETE ON document_blob TO chatmind_gateway;
GRANT EXECUTE ON FUNCTION document_json(document) TO chatmind_gateway;
GRANT SELECT (tenant_id, key, fingerprint, response, created_at),
    INSERT (tenant_id, key, fingerprint, status, response),
    UPDATE (fingerprint, status, response, created_at),
    DELETE ON idempotency_key TO chatmind_gateway;
GRANT SELECT,
    INSERT (tenant_id, id, name, description, embedding_model, settings),
    UPDATE (name, description, embedding_model, settings, updated_at, last_seq, embedding_generation, last_generation),
    DELETE ON knowledge_base TO chatmind_gateway;
GRANT SELECT (knowledge_base_id, generation) ON chunk_embedding TO chatmind_gateway;
GRANT SELECT (tenant_id, knowledge_base_id, generation, model, state, done, total, error, lease_epoch, created_at, updated_at),
    INSERT (tenant_id, knowledge_base_id, generation, model, state, request_id),
    UPDATE (state, error, lease_owner, lease_epoch, lease_until, not_before, attempts, request_id, updated_at),
    DELETE ON embedding_generation TO chatmind_gateway;
GRANT EXECUTE ON FUNCTION embedding_json(knowledge_base) TO chatmind_gateway;
GRANT SELECT, INSERT (tenant_id, knowledge_base_id, seq, type, payload) ON knowledge_base_event TO chatmind_gateway;
GRANT EXECUTE ON FUNCTION knowledge_base_json(knowledge_base) TO chatmind_gateway;
GRANT EXECUTE ON FUNCTION message_json(chat_message) TO chatmind_gateway;
GRANT SELECT (id, kind, subject_id, body), INSERT (kind, subject_id, body), UPDATE (id), DELETE ON outbox TO chatmind_gateway;
GRANT SELECT, INSERT, UPDATE (tokens, granted, refilled_at) ON request_rate TO chatmind_gateway;
GRANT SELECT,
    INSERT (tenant_id, id, session_id, seq, request_id),
    UPDATE (status, state, step, reason, error, usage, lease_owner, lease_epoch, lease_until, attempts, finished_at, turn) ON run TO
        chatmind_gateway;
GRANT EXECUTE ON FUNCTION run_json(run) TO chatmind_gateway;
GRANT SELECT,
    INSERT (tenant_id, run_id, n, step, kind, state, message_id, tool_name, tool_call_id, arguments, error, usage, lease_epoch,
        started_at, finished_at),
    UPDATE (state, error, lease_epoch, finished_at, resolution) ON run_step TO chatmind_gateway;
GRANT EXECUTE ON FUNCTION run_step_json(run_step) TO chatmind_gateway;
GRANT SELECT, INSERT (tenant_id, session_id, seq, type, payload) ON session_event TO chatmind_gateway;
GRANT EXECUTE ON FUNCTION session_json(chat_session) TO chatmind_gateway;
GRANT SELECT (id, name), INSERT (id, name), UPDATE (name) ON tenant TO chatmind_gateway;
GRANT SELECT, INSERT, UPDATE (amount) ON unfinished TO chatmind_gateway;
GRANT SELECT, UPDATE (id), DELETE ON unfinished_change TO chatmind_gateway;
GRANT EXECUTE ON FUNCTION wake_next_run(uuid) TO chatmind_gateway;

-- section: agent_runner
-- Carries out runs: it may not see documents, chunks or keys.
GRANT SELECT (tenant_id, id, name, system_prompt, model, tools, options, max_steps, knowledge) ON agent TO chatmind_agent_runner;
GRANT SELECT ON agent_knowledge_base TO chatmind_agent_runner;
GRANT EXECUTE ON FUNCTION announce_positions(uuid,bigint) TO chatmind_agent_runner;
GRANT SELECT,
    INSERT (tenant_id, id, session_id, run_id, seq, run_seq, role, content, tool_calls, tool_call_id, tool_name, citations, usage, model,
        metadata) ON chat_message TO chatmind_agent_runner;
GRANT SELECT (tenant_id, id, agent_id, state, last_seq, message_seq),
    UPDATE (state, last_seq, message_seq, updated_at) ON chat_session TO chatmind_agent_runner;
GRANT SELECT (tenant_id, id, name, description) ON knowledge_base TO chatmind_agent_runner;
GRANT EXECUTE ON FUNCTION message_json(chat_message) TO chatmind_agent_runner;
GRANT SELECT (id, kind, subject_id, body), INSERT (kind, subject_id, body), UPDATE (id), DELETE ON outbox TO chatmind_agent_runner;
GRANT SELECT (tenant_id, id, session_id, seq, status, state, step, usage, lease_owner, lease_epoch, lease_until, not_before, attempts,
        request_id, created_at, started_at, fair_tag, turn),
    UPDATE (status, state, step, reason, error, usage, lease_owner, lease_epoch, lease_until, not_before, attempts, started_at,
        finished_at, turn) ON run TO chatmind_agent_runner;
GRANT SELECT (tenant_id, run_id, n, step, state, message_id, tool_name, tool_call_id, started_at),
    INSERT (tenant_id, run_id, n, step, kind, state, message_id, tool_name, tool_call_id, arguments, error, usage, lease_epoch,
        started_at, finished_at),
    UPDATE (state, error, lease_epoch, finished_at) ON run_step TO chatmind_agent_runner;
GRANT SELECT (session_id, seq, type, payload, created_at), INSERT (tenant_id, session_id, seq, type, payload) ON session_event TO
        chatmind_agent_runner;
GRANT SELECT (kind, reason) ON stuck TO chatmind_agent_runner;
GRANT EXECUTE ON FUNCTION wake_next_run(uuid) TO chatmind_agent_runner;

-- section: ingestion
-- Turns documents into chunks: it may not see conversations, agents or keys.
GRANT SELECT (tenant_id, id, knowledge_base_id, document_id, ordinal, title, heading_path, content, keyword_count),
    INSERT (tenant_id, id, knowledge_base_id, document_id, version, ordinal, title, heading_path, content, char_start, char_end, keywords,
        keyword_count, header_chars, parent_id, page_first, page_last),
    DELETE ON chunk TO chatmind_ingestion;
GRANT SELECT (knowledge_base_id, chunk_id, field, generation), INSERT, DELETE ON chunk_embedding TO chatmind_ingestion;
GRANT SELECT (tenant_id, document_id),
    INSERT (tenant_id, id, knowledge_base_id, document_id, version, ordinal, title, heading_path, content, char_start, char_end, header_chars,
        page_first, page_last),
    DELETE ON chunk_parent TO chatmind_ingestion;
GRANT SELECT,
    UPDATE (current_version, state, progress_done, progress_total, chunk_count, error, lease_owner, lease_epoch, lease_until, not_before,
        attempts, updated_at, warnings, media_type, deaths, waiting) ON document TO chatmind_ingestion;
GRANT SELECT,
    INSERT (tenant_id, knowledge_base_id, generation, model, state),
    UPDATE (state, done, total, error, lease_owner, lease_epoch, lease_until, not_before, attempts, updated_at),
    DELETE ON embedding_generation TO chatmind_ingestion;
GRANT EXECUTE ON FUNCTION embedding_json(knowledge_base) TO chatmind_ingestion;
GRANT SELECT, DELETE ON document_blob TO chatmind_ingestion;
GRANT EXECUTE ON FUNCTION document_json(document) TO chatmind_ingestion;
GRANT SELECT, INSERT (model, text_sha256, embedding), DELETE ON embedding_cache TO chatmind_ingestion;
GRANT SELECT, UPDATE (last_seq, embedding_model, embedding_generation, updated_at) ON knowledge_base TO chatmind_ingestion;
GRANT SELECT (seq, type, payload, created_at), INSERT (tenant_id, knowledge_base_id, seq, type, payload) ON knowledge_base_event TO
        chatmind_ingestion;
GRANT SELECT (id, kind, subject_id, body), INSERT (kind, subject_id, body), UPDATE (id), DELETE ON outbox TO chatmind_ingestion;
GRANT SELECT (status) ON run TO chatmind_ingestion;
GRANT SELECT (kind, reason) ON stuck TO chatmind_ingestion;
-- Indexes of large bases; tables are made and dropped by these functions only.
GRANT SELECT (knowledge_base_id, generation, relation, lists, copied, vectors, chunks, common_of, due, horizon, not_before, created_at),
    INSERT (tenant_id, knowledge_base_id, generation),
    UPDATE (vectors, chunks, mean_length, common_terms, common_of, due, horizon, not_before, error), DELETE ON vector_index TO chatmind_ingestion;
GRANT SELECT, UPDATE (knowledge_base_id), DELETE ON vector_change TO chatmind_ingestion;
GRANT SELECT (knowledge_base_id, generation), DELETE ON vector_pending TO chatmind_ingestion;
GRANT EXECUTE ON FUNCTION build_vector_index(uuid,integer,integer) TO chatmind_ingestion;
GRANT EXECUTE ON FUNCTION extend_vector_index(uuid,integer,integer) TO chatmind_ingestion;
GRANT EXECUTE ON FUNCTION count_common_terms(uuid,bigint,integer) TO chatmind_ingestion;
GRANT EXECUTE ON FUNCTION drop_unused_vector_relations() TO chatmind_ingestion;

-- section: retrieval
-- Searches. It writes nothing.
GRANT SELECT ON agent_knowledge_base TO chatmind_retrieval;
GRANT SELECT (tenant_id, id, agent_id) ON chat_session TO chatmind_retrieval;
GRANT SELECT (tenant_id, id, knowledge_base_id, document_id, version, ordinal, title, heading_path, content, char_start, char_end,
        keywords, keyword_count, header_chars, parent_id, page_first, page_last) ON chunk TO chatmind_retrieval;
GRANT SELECT (knowledge_base_id, chunk_id, field, embedding, generation) ON chunk_embedding TO chatmind_retrieval;
GRANT SELECT (tenant_id, id, title, heading_path, content, char_start, char_end, header_chars, page_first, page_last) ON chunk_parent TO
        chatmind_retrieval;
GRANT SELECT (tenant_id, id, knowledge_base_id, filename, media_type, tags, document_date, chunk_count, created_at) ON document TO
        chatmind_retrieval;
GRANT SELECT (tenant_id, id, embedding_model, embedding_generation) ON knowledge_base TO chatmind_retrieval;
GRANT EXECUTE ON FUNCTION nearest_indexed_vectors(uuid,integer,vector,integer,uuid[]) TO chatmind_retrieval;
GRANT SELECT (tenant_id, id, session_id, status) ON run TO chatmind_retrieval;
GRANT SELECT (knowledge_base_id, generation, relation, copied, chunks, mean_length, common_terms) ON vector_index TO chatmind_retrieval;
