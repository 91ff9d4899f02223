-- name: lock_session
-- The session row, locked: from here to the commit nobody else appends to the session. One row or none.
SELECT s.id, s.last_seq, s.state, a.deleted_at IS NOT NULL AS agent_deleted
FROM chat_session s JOIN agent a ON a.tenant_id = s.tenant_id AND a.id = s.agent_id
WHERE s.tenant_id = $1 AND s.id = $2
FOR NO KEY UPDATE OF s;

-- name: post_message
-- Appends the user's message ($3 id, $4 content, $5 metadata) and a queued run ($6 id, $7 request id) with their events and the wake-up
-- to a locked session.
-- Returns the message and the run as JSON text, and the events.
WITH session AS (
    UPDATE chat_session SET message_seq = message_seq + 1, last_seq = last_seq + 2, updated_at = now()
    WHERE tenant_id = $1 AND id = $2
    RETURNING tenant_id, id, message_seq, last_seq
), message AS (
    INSERT INTO chat_message (tenant_id, id, session_id, run_id, seq, run_seq, role, content, metadata)
    SELECT tenant_id, $3, id, $6, message_seq, message_seq, 'user', $4, $5::jsonb FROM session
    RETURNING chat_message
), new_run AS (
    INSERT INTO run (tenant_id, id, session_id, seq, request_id)
    SELECT tenant_id, $6, id, message_seq, $7::text FROM session
    RETURNING run
), wake_up AS (
    INSERT INTO outbox (kind, subject_id, body)
    SELECT 'ExecuteRun', $6, json_build_object('schema_version', 1, 'tenant_id', tenant_id, 'session_id', id, 'run_id', $6::uuid, 'request_id', $7::text)
    FROM session
), event AS (
    INSERT INTO session_event (tenant_id, session_id, seq, type, payload)
    SELECT s.tenant_id, s.id, s.last_seq - 1, 'message.created', json_build_object('message', message_json(m.chat_message)) FROM session s, message m
    UNION ALL
    SELECT s.tenant_id, s.id, s.last_seq, 'run.queued', json_build_object(
        'run_id', $6::uuid,
        'position', (SELECT count(*) FROM run ahead WHERE ahead.session_id = s.id AND ahead.status <> 'finished'))
    FROM session s
    RETURNING seq, type, payload::text AS payload, created_at
)
SELECT (SELECT message_json(chat_message)::text FROM message) AS message, (SELECT row_to_json(run)::text FROM new_run) AS run,
       e.seq, e.type, e.payload, e.created_at
FROM event e ORDER BY e.seq;

-- name: claim_runs
-- Takes up to $3 queued runs for an owner ($1) until the lease ($2 interval) runs out: those that are due and whose turn it is in their session, in
-- the fair order over tenants, without those of some tenants ($4). A session that somebody holds is passed over: waiting for it would hold up all
-- others. One row for each claimed run.
WITH next AS (
    SELECT r.id FROM run r JOIN chat_session s ON s.id = r.session_id
    WHERE r.status = 'queued' AND r.turn AND r.not_before <= now() AND r.tenant_id <> ALL ($4::uuid[])
    ORDER BY r.fair_tag, r.id LIMIT $3
    FOR NO KEY UPDATE OF r, s SKIP LOCKED
), claimed AS (
    UPDATE run r SET
        status = 'running', state = 'PLANNING', lease_owner = $1, lease_epoch = r.lease_epoch + 1, lease_until = now() + $2::interval,
        attempts = r.attempts + 1, started_at = coalesce(r.started_at, now())
    FROM next WHERE r.id = next.id
    RETURNING r.tenant_id, r.session_id, r.id, r.seq, r.step, r.usage, r.lease_epoch, r.attempts, r.request_id, r.created_at
), session AS (
    UPDATE chat_session s SET state = 'PLANNING', last_seq = s.last_seq + 1, updated_at = now()
    FROM claimed c WHERE s.id = c.session_id
    RETURNING s.tenant_id, s.id, s.last_seq
), event AS (
    INSERT INTO session_event (tenant_id, session_id, seq, type, payload)
    SELECT s.tenant_id, s.id, s.last_seq, 'run.state', json_build_object('run_id', c.id, 'state', 'PLANNING', 'step', c.step, 'attempt', c.lease_epoch)
    FROM session s JOIN claimed c ON c.session_id = s.id
    RETURNING session_id, seq, type, payload::text AS payload, created_at
)
SELECT c.*, e.seq AS event_seq, e.type, e.payload, e.created_at AS event_created_at
FROM claimed c JOIN event e ON e.session_id = c.session_id;

-- name: advance_run
-- Moves a run ($1) on, with everything that becomes visible by it, or does nothing. It is fenced: with an epoch ($2) it touches the run only
-- while that lease stands; without one it ends a run from outside and takes the lease away.
-- $3 state, $4 think step or null, $5 message or null, $6 journal entry or null, $7 the events after the message's own as a JSON array of
-- {type, fields}, $8 reason when this ends the run, $9 error, $10 usage of the run or null.
-- A journal entry that is `started` is ended by a second one of its number; no other is ever written twice.
-- A run that ends wakes the next one of its session, and tells those that wait behind it their new places by events that come after these.
-- Returns the events; no row means that the lease is lost or the run was finished already.
WITH fenced AS (
    UPDATE run SET
        state = $3::text,
        step = coalesce($4::integer, step),
        usage = coalesce($10::jsonb, usage),
        status = CASE WHEN $8::text IS NULL THEN status ELSE 'finished' END,
        reason = $8::text,
        error = $9::jsonb,
        lease_owner = CASE WHEN $8::text IS NULL THEN lease_owner END,
        lease_until = CASE WHEN $8::text IS NULL THEN lease_until END,
        lease_epoch = lease_epoch + ($2::bigint IS NULL)::integer,
        finished_at = CASE WHEN $8::text IS NOT NULL THEN clock_timestamp() END, -- now() is when a cancel began to wait for the row
        attempts = CASE WHEN $6::jsonb IS NULL THEN attempts ELSE 0 END
    WHERE id = $1 AND ((status = 'running' AND lease_epoch = $2::bigint) OR ($2::bigint IS NULL AND status <> 'finished'))
    RETURNING tenant_id, id, session_id, seq, lease_epoch
), session AS (
    UPDATE chat_session s SET
        state = CASE WHEN $8::text IS NULL OR NOT EXISTS (
            SELECT FROM run other WHERE other.session_id = s.id AND other.status = 'running' AND other.id <> f.id) THEN $3::text ELSE s.state END,
        message_seq = s.message_seq + ($5::jsonb IS NOT NULL)::integer,
        last_seq = s.last_seq + ($5::jsonb IS NOT NULL)::integer + json_array_length($7::json),
        updated_at = now()
    FROM fenced f WHERE s.id = f.session_id
    RETURNING s.tenant_id, s.id, s.message_seq, s.last_seq - json_array_length($7::json) AS seq_before
), message AS (
    INSERT INTO chat_message (tenant_id, id, session_id, run_id, seq, run_seq, role, content, tool_calls, tool_call_id, tool_name, citations, usage, model, metadata)
    SELECT s.tenant_id, m.id, s.id, $1, s.message_seq, f.seq, m.role, m.content, coalesce(m.tool_calls, '[]'), m.tool_call_id, m.tool_name,
           coalesce(m.citations, '[]'), m.usage, m.model, coalesce(m.metadata, '{}')
    FROM session s, fenced f, jsonb_to_record($5::jsonb) AS m (
        id uuid, role text, content text, tool_calls jsonb, tool_call_id text, tool_name text, citations jsonb, usage jsonb, model text, metadata jsonb)
    WHERE $5::jsonb IS NOT NULL
    RETURNING chat_message
), ended AS (
    UPDATE run_step s SET state = j.state, error = j.error, lease_epoch = f.lease_epoch, finished_at = clock_timestamp()
    FROM fenced f, session, jsonb_to_record($6::jsonb) AS j (n integer, state text, error jsonb)
    WHERE s.tenant_id = f.tenant_id AND s.run_id = f.id AND s.n = j.n AND s.state = 'started' AND j.state <> 'started'
    RETURNING s.n
), journal AS (
    INSERT INTO run_step (tenant_id, run_id, n, step, kind, state, message_id, tool_name, tool_call_id, arguments, error, usage, lease_epoch, started_at,
        finished_at)
    SELECT f.tenant_id, f.id, j.n, j.step, j.kind, j.state, j.message_id, j.tool_name, j.tool_call_id, j.arguments, j.error, j.usage, f.lease_epoch, j.started_at,
        CASE WHEN j.state <> 'started' THEN now() END
    FROM fenced f, jsonb_to_record($6::jsonb) AS j (
        n integer, step integer, kind text, state text, message_id uuid, tool_name text, tool_call_id text, arguments jsonb, error jsonb, usage jsonb, started_at timestamptz)
    WHERE $6::jsonb IS NOT NULL AND NOT EXISTS (SELECT FROM ended)
), event AS (
    INSERT INTO session_event (tenant_id, session_id, seq, type, payload)
    SELECT s.tenant_id, s.id, s.seq_before, 'message.created', json_build_object('message', message_json(m.chat_message)) FROM session s, message m
    UNION ALL
    SELECT s.tenant_id, s.id, s.seq_before + e.position, e.event ->> 'type', e.event -> 'fields'
    FROM session s, json_array_elements($7::json) WITH ORDINALITY AS e (event, position)
    RETURNING session_id, seq, type, payload::text AS payload, created_at
)
SELECT session_id, seq, type, payload, created_at,
       CASE WHEN type = 'run.finished' THEN wake_next_run(session_id) END AS woken, -- the session's row is locked by now
       CASE WHEN type = 'run.finished' THEN announce_positions(session_id, (SELECT seq FROM fenced)) END AS moved
FROM event ORDER BY seq;

-- name: find_unfinished_run
-- The oldest run of a session that has not ended, if any.
SELECT id, status FROM run WHERE tenant_id = $1 AND session_id = $2 AND status <> 'finished' ORDER BY seq LIMIT 1;

-- name: lock_unfinished_run
-- A run ($1) that has not ended, locked: from here to the commit nobody moves it on. One row or none.
-- Those before it in its session are locked first, oldest first: the end of one gives the next its turn with the session locked, and must not meet
-- somebody who holds that next run and waits for the session.
WITH line AS MATERIALIZED (
    SELECT ahead.id, ahead.tenant_id, ahead.state
    FROM run r JOIN run ahead ON ahead.session_id = r.session_id AND ahead.seq <= r.seq AND ahead.status <> 'finished'
    WHERE r.id = $1
    ORDER BY ahead.seq
    FOR NO KEY UPDATE OF ahead
)
SELECT tenant_id, state FROM line WHERE id = $1;

-- name: find_started_steps
-- The steps of a run that were begun and have no result, in their order.
SELECT n, step, tool_name, tool_call_id, message_id, started_at FROM run_step
WHERE tenant_id = $1 AND run_id = $2 AND state = 'started' ORDER BY n;

-- name: resolve_step
-- Records what a user says of step $3 of run $2 whose outcome is unknown: $4 done or failed, $5 the result or null, $6 the hash of the user's key.
-- The step, its message and the session's log change together; the caller has locked the session (`lock_session`) in this transaction.
-- Returns the event; no row means that there is no such step, or that its outcome is not unknown.
WITH resolved AS (
    UPDATE run_step s SET state = $4::text, resolution = jsonb_build_object(
        'outcome', $4::text, 'result', $5::text, 'at', now(),
        'by', (SELECT jsonb_build_object('id', k.id, 'name', k.name) FROM api_key k WHERE k.key_hash = $6))
    WHERE s.tenant_id = $1 AND s.run_id = $2 AND s.n = $3 AND s.state = 'unknown'
    RETURNING s.run_id, s.n, s.step, s.message_id, s.tool_name, s.tool_call_id, s.resolution
), message AS (
    UPDATE chat_message m SET metadata = m.metadata || jsonb_build_object('resolution', s.resolution)
    FROM resolved s WHERE m.tenant_id = $1 AND m.id = s.message_id
), session AS (
    UPDATE chat_session c SET last_seq = c.last_seq + 1, updated_at = now()
    FROM resolved s JOIN run r ON r.tenant_id = $1 AND r.id = s.run_id
    WHERE c.tenant_id = $1 AND c.id = r.session_id
    RETURNING c.id, c.last_seq
)
INSERT INTO session_event (tenant_id, session_id, seq, type, payload)
SELECT $1, c.id, c.last_seq, 'step.resolved', json_build_object(
    'run_id', s.run_id, 'n', s.n, 'step', s.step, 'message_id', s.message_id, 'tool_name', s.tool_name, 'tool_call_id', s.tool_call_id,
    'resolution', s.resolution)
FROM session c, resolved s
RETURNING session_id, seq, type, payload::text AS payload, created_at;
