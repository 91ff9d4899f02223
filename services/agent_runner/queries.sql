-- name: load_agent
-- The agent of a session with the knowledge bases it was granted, in their order.
SELECT a.name, a.system_prompt, a.model, a.tools, a.options, a.max_steps, a.knowledge,
       coalesce((
           SELECT jsonb_agg(jsonb_build_object('id', k.id, 'name', k.name, 'description', k.description) ORDER BY g.position)
           FROM agent_knowledge_base g JOIN knowledge_base k ON k.tenant_id = g.tenant_id AND k.id = g.knowledge_base_id
           WHERE g.tenant_id = a.tenant_id AND g.agent_id = a.id), '[]') AS knowledge_bases
FROM chat_session s JOIN agent a ON a.tenant_id = s.tenant_id AND a.id = s.agent_id
WHERE s.tenant_id = $1 AND s.id = $2;

-- name: load_messages
-- The newest messages ($3 at most) of a session's runs up to run seq $2, newest first.
SELECT run_id, role, content, tool_calls, tool_call_id, metadata
FROM chat_message
WHERE session_id = $1 AND run_seq <= $2
ORDER BY run_seq DESC, seq DESC
LIMIT $3;

-- name: renew_leases
-- Renews this owner's leases on runs and says which of them are still its own.
UPDATE run SET lease_until = now() + $3::interval
WHERE id = ANY ($1::uuid[]) AND lease_owner = $2 AND status = 'running'
RETURNING id;

-- name: release_run
-- Hands a run back: queued again from now plus $3 on. $4 says whether the attempt counts. Fenced. A wake-up tells the others when it is due now;
-- later they find it by themselves.
WITH released AS (
    UPDATE run SET status = 'queued', lease_owner = NULL, lease_until = NULL, not_before = now() + $3::interval,
                   attempts = greatest(attempts - (NOT $4::boolean)::integer, 0)
    WHERE id = $1 AND lease_epoch = $2 AND status = 'running'
    RETURNING tenant_id, session_id, id, request_id
)
INSERT INTO outbox (kind, subject_id, body)
SELECT 'ExecuteRun', id, json_build_object('schema_version', 1, 'tenant_id', tenant_id, 'session_id', session_id, 'run_id', id, 'request_id', request_id)
FROM released
WHERE $3::interval <= interval '0'
RETURNING subject_id;

-- name: requeue_abandoned_runs
-- Queues the runs again whose owner is gone: its lease has run out, or its advisory lock ($1 is its class) is not in pg_locks any more. The lock's
-- absence counts only after the lease's first seconds ($2: the lease's length less these): a process that has just started or lost a connection
-- may not hold it yet. The first time at once; a run that was abandoned before waits a random time within 2^attempts seconds, at most $3.
-- And the runs that this process ($4, its owner's id) has and does not work on ($5: what it works on): the database went away in the middle of
-- a claim or of handing one back. That is no attempt.
WITH abandoned AS (
    SELECT id, lease_owner = $4 AS dropped FROM run
    WHERE status = 'running' AND (
        lease_until < now()
        OR (lease_until < now() + $2::interval AND CASE WHEN lease_owner = $4 THEN id <> ALL ($5::uuid[]) ELSE NOT EXISTS (
            SELECT FROM pg_locks l
            WHERE l.locktype = 'advisory' AND l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
              AND l.classid = $1::integer::oid AND l.objid = (hashtext(run.lease_owner::text)::bigint & 4294967295)::oid AND l.objsubid = 2)
        END))
    LIMIT 100
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE run SET status = 'queued', lease_owner = NULL, lease_until = NULL, attempts = greatest(attempts - dropped::integer, 0),
               not_before = now() + CASE WHEN dropped OR attempts <= 1 THEN 0 ELSE random() * least(2 ^ attempts, $3::float8) END * interval '1 second'
FROM abandoned WHERE run.id = abandoned.id
RETURNING run.id, run.session_id, run.attempts;
