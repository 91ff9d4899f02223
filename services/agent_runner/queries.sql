-- name: load_agent
-- The agent of a session with the knowledge bases it was granted, in their order.
SELECT a.name, a.system_prompt, a.model, a.tools, a.options, a.max_steps,
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
UPDATE run SET lease_until = now() + $3::interval, wake_at = now() + $3::interval
WHERE id = ANY ($1::uuid[]) AND lease_owner = $2 AND status = 'running'
RETURNING id;

-- name: release_run
-- Hands a run back: queued again from now plus $3 on. $4 says whether the attempt counts. Fenced; without a delay it gets its wake-up at
-- once, otherwise the sweeper sends it when it is due.
WITH released AS (
    UPDATE run SET status = 'queued', lease_owner = NULL, lease_until = NULL, not_before = now() + $3::interval,
                   wake_at = now() + CASE WHEN $3::interval > interval '0' THEN $3::interval ELSE interval '15 seconds' END,
                   attempts = attempts - (NOT $4::boolean)::integer
    WHERE id = $1 AND lease_epoch = $2 AND status = 'running'
    RETURNING tenant_id, session_id, id, request_id
)
INSERT INTO outbox (kind, subject_id, body)
SELECT 'ExecuteRun', id, json_build_object('schema_version', 1, 'tenant_id', tenant_id, 'session_id', session_id, 'run_id', id, 'request_id', request_id)
FROM released
WHERE $3::interval <= interval '0'
RETURNING subject_id;

-- name: expire_orphaned_leases
-- Ends the leases of processes that are gone: the advisory lock of a living owner ($1 is its class) is in pg_locks. A lease is left alone in
-- its first seconds ($2: the lease's length less these): a process that has just started or lost a connection may not hold its lock yet.
UPDATE run SET lease_until = now() - interval '1 microsecond', wake_at = now()
WHERE status = 'running' AND lease_until >= now() AND lease_until < now() + $2::interval AND NOT EXISTS (
    SELECT FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND l.classid = $1::integer::oid AND l.objid = (hashtext(run.lease_owner::text)::bigint & 4294967295)::oid AND l.objsubid = 2)
RETURNING id;

-- name: wake_stale_runs
-- Writes a wake-up for every run whose lease has run out, and for up to $2 queued ones that are the first of their session, due, and whose last
-- wake-up, $1 ago, may have been lost. wake_at becomes the time of the next one.
WITH expired AS (
    SELECT id FROM run
    WHERE status = 'running' AND lease_until < now() AND wake_at <= now()
    LIMIT 100
    FOR UPDATE SKIP LOCKED
), forgotten AS (
    SELECT r.id FROM run r
    WHERE r.status = 'queued' AND r.wake_at <= now()
      AND NOT EXISTS (SELECT FROM run e WHERE e.session_id = r.session_id AND e.seq < r.seq AND e.status <> 'finished')
    ORDER BY r.wake_at LIMIT $2
    FOR UPDATE SKIP LOCKED
), stale AS (
    SELECT id FROM expired UNION ALL SELECT id FROM forgotten
), woken AS (
    UPDATE run SET wake_at = now() + $1::interval
    FROM stale WHERE run.id = stale.id
    RETURNING run.tenant_id, run.session_id, run.id, run.request_id
)
INSERT INTO outbox (kind, subject_id, body)
SELECT 'ExecuteRun', id, json_build_object('schema_version', 1, 'tenant_id', tenant_id, 'session_id', session_id, 'run_id', id, 'request_id', request_id)
FROM woken
WHERE NOT EXISTS (SELECT FROM outbox o WHERE o.subject_id = woken.id)
RETURNING subject_id;
