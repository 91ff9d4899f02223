-- How an agent's searches are made: rewriting of the query, threshold, reranking, filter. What is left out has its default
-- (shared/contracts/agent_knowledge.py); the previous release's agents have them all.
ALTER TABLE agent ADD COLUMN knowledge jsonb NOT NULL DEFAULT '{}';

CREATE OR REPLACE FUNCTION agent_json(a agent) RETURNS json LANGUAGE sql STABLE AS $$
    SELECT json_build_object(
        'id', a.id, 'name', a.name, 'description', a.description, 'system_prompt', a.system_prompt, 'model', a.model, 'tools', a.tools,
        'knowledge_base_ids', ARRAY(
            SELECT g.knowledge_base_id FROM agent_knowledge_base g
            WHERE g.tenant_id = a.tenant_id AND g.agent_id = a.id ORDER BY g.position),
        'knowledge', jsonb_build_object('query_rewriting', 'off', 'min_score', NULL, 'rerank', NULL, 'filter', NULL) || a.knowledge,
        'options', a.options, 'max_steps', a.max_steps, 'created_at', a.created_at, 'updated_at', a.updated_at)
$$;
