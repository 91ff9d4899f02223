-- How resources look to clients: one function a resource, so that creating, reading, listing and changing answer alike.

CREATE FUNCTION agent_json(a agent) RETURNS json LANGUAGE sql STABLE AS $$
    SELECT json_build_object(
        'id', a.id, 'name', a.name, 'description', a.description, 'system_prompt', a.system_prompt, 'model', a.model, 'tools', a.tools,
        'knowledge_base_ids', ARRAY(
            SELECT g.knowledge_base_id FROM agent_knowledge_base g
            WHERE g.tenant_id = a.tenant_id AND g.agent_id = a.id ORDER BY g.position),
        'options', a.options, 'max_steps', a.max_steps, 'created_at', a.created_at, 'updated_at', a.updated_at)
$$;

CREATE FUNCTION session_json(s chat_session) RETURNS json LANGUAGE sql STABLE AS $$
    SELECT json_build_object(
        'id', s.id, 'agent_id', s.agent_id, 'title', s.title, 'state', s.state, 'last_seq', s.last_seq,
        'created_at', s.created_at, 'updated_at', s.updated_at)
$$;

CREATE FUNCTION run_json(r run) RETURNS json LANGUAGE sql STABLE AS $$
    SELECT json_build_object(
        'id', r.id, 'session_id', r.session_id, 'state', r.state, 'reason', r.reason, 'step', r.step, 'error', r.error, 'usage', r.usage,
        'created_at', r.created_at, 'started_at', r.started_at, 'finished_at', r.finished_at)
$$;

CREATE FUNCTION run_step_json(s run_step) RETURNS json LANGUAGE sql STABLE AS $$
    SELECT json_build_object(
        'n', s.n, 'step', s.step, 'kind', s.kind, 'state', s.state, 'message_id', s.message_id, 'tool_name', s.tool_name,
        'tool_call_id', s.tool_call_id, 'arguments', s.arguments, 'error', s.error, 'usage', s.usage,
        'started_at', s.started_at, 'finished_at', s.finished_at)
$$;

CREATE FUNCTION knowledge_base_json(k knowledge_base) RETURNS json LANGUAGE sql STABLE AS $$
    SELECT json_build_object(
        'id', k.id, 'name', k.name, 'description', k.description, 'embedding_model', k.embedding_model, 'settings', k.settings,
        'last_seq', k.last_seq, 'created_at', k.created_at, 'updated_at', k.updated_at)
$$;

CREATE FUNCTION chunk_json(c chunk) RETURNS json LANGUAGE sql STABLE AS $$
    SELECT json_build_object(
        'id', c.id, 'document_id', c.document_id, 'version', c.version, 'ordinal', c.ordinal, 'title', c.title,
        'heading_path', c.heading_path, 'content', c.content, 'kind', c.kind, 'char_start', c.char_start, 'char_end', c.char_end,
        'metadata', c.metadata)
$$;
