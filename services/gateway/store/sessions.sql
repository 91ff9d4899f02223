-- name: create_session
-- Adds a session ($2) to an agent ($3) with a title ($4); no row when the agent doesn't exist or was deleted.
INSERT INTO chat_session (tenant_id, id, agent_id, title)
SELECT tenant_id, $2, id, $4 FROM agent WHERE tenant_id = $1 AND id = $3 AND deleted_at IS NULL
RETURNING session_json(chat_session)::text;

-- name: read_session
-- A session as clients see it.
SELECT session_json(s)::text FROM chat_session s WHERE tenant_id = $1 AND id = $2;

-- name: list_sessions
-- A page of sessions, newest first, below an id ($2).
SELECT id, session_json(s)::text AS body FROM chat_session s WHERE tenant_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3;

-- name: list_sessions_of_agent
-- The same for one agent ($4).
SELECT id, session_json(s)::text AS body FROM chat_session s
WHERE tenant_id = $1 AND agent_id = $4 AND id < $2 ORDER BY id DESC LIMIT $3;

-- name: rename_session
-- Sets the title.
UPDATE chat_session SET title = $3, updated_at = now() WHERE tenant_id = $1 AND id = $2
RETURNING session_json(chat_session)::text;

-- name: lock_runs_of_session
-- The unfinished runs of a session, oldest first, locked: runs are locked before their session.
SELECT id FROM run WHERE tenant_id = $1 AND session_id = $2 AND status <> 'finished' ORDER BY seq FOR NO KEY UPDATE;

-- name: delete_session
-- Removes a session with its messages, runs and events. One row when it existed.
DELETE FROM chat_session WHERE tenant_id = $1 AND id = $2 RETURNING id;

-- name: list_messages
-- A page of a session's messages, oldest first, above a seq ($3).
SELECT seq, message_json(m)::text AS body FROM chat_message m
WHERE tenant_id = $1 AND session_id = $2 AND seq > $3 ORDER BY seq LIMIT $4;

-- name: list_messages_newest_first
-- A page of a session's messages, newest first, below a seq ($3).
SELECT seq, message_json(m)::text AS body FROM chat_message m
WHERE tenant_id = $1 AND session_id = $2 AND seq < $3 ORDER BY seq DESC LIMIT $4;

-- name: session_exists
-- True when the tenant has the session.
SELECT EXISTS (SELECT FROM chat_session WHERE tenant_id = $1 AND id = $2);
