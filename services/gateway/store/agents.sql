-- name: create_agent
-- Adds an agent: $1 tenant, $2 id, then its columns.
INSERT INTO agent (tenant_id, id, name, description, system_prompt, model, tools, options, max_steps, knowledge)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: read_agent
-- An agent as clients see it.
SELECT agent_json(a)::text FROM agent a WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL;

-- name: list_agents
-- A page of agents, newest first, below an id ($2).
SELECT id, agent_json(a)::text AS body FROM agent a
WHERE tenant_id = $1 AND id < $2 AND deleted_at IS NULL ORDER BY id DESC LIMIT $3;

-- name: update_agent
-- Changes the columns that $3 (an object by column name) holds. One row when the agent exists.
UPDATE agent a SET
    name = coalesce(c.name, a.name), description = coalesce(c.description, a.description),
    system_prompt = coalesce(c.system_prompt, a.system_prompt), model = coalesce(c.model, a.model), tools = coalesce(c.tools, a.tools),
    options = coalesce(c.options, a.options), max_steps = coalesce(c.max_steps, a.max_steps),
    knowledge = coalesce(c.knowledge, a.knowledge), updated_at = now()
FROM jsonb_to_record($3::jsonb) AS c (
    name text, description text, system_prompt text, model text, tools text[], options jsonb, max_steps integer, knowledge jsonb)
WHERE a.tenant_id = $1 AND a.id = $2 AND a.deleted_at IS NULL
RETURNING a.id;

-- name: delete_agent
-- Hides an agent; its sessions stay readable. One row when it existed.
UPDATE agent SET deleted_at = now() WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL RETURNING id;

-- name: lock_knowledge_bases
-- Which of these knowledge bases ($2) the tenant has, kept from being deleted until the commit.
SELECT id FROM knowledge_base WHERE tenant_id = $1 AND id = ANY ($2::uuid[]) ORDER BY id FOR KEY SHARE;

-- name: revoke_grants
-- Takes every knowledge base away from an agent.
DELETE FROM agent_knowledge_base WHERE tenant_id = $1 AND agent_id = $2;

-- name: add_grants
-- Lets an agent read these knowledge bases ($3), in this order.
INSERT INTO agent_knowledge_base (tenant_id, agent_id, knowledge_base_id, position)
SELECT $1, $2, g.id, g.position FROM unnest($3::uuid[]) WITH ORDINALITY AS g (id, position);
