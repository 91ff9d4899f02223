-- name: session_position
-- The seq of a session's newest event; no row when the tenant has no such session.
SELECT last_seq FROM chat_session WHERE tenant_id = $1 AND id = $2;

-- name: session_positions
-- The same for the sessions that clients of this process listen to, each of which was looked up by its tenant before.
SELECT id, last_seq FROM chat_session WHERE id = ANY ($1::uuid[]);

-- name: session_events
-- Events of a session behind a seq ($3): at most $4 of them, and no more after $5 bytes of payload.
SELECT seq, type, payload, created_at FROM (
    SELECT *, sum(octet_length(payload)) OVER (ORDER BY seq) - octet_length(payload) AS bytes_before FROM (
        SELECT seq, type, payload::text AS payload, created_at FROM session_event
        WHERE tenant_id = $1 AND session_id = $2 AND seq > $3 ORDER BY seq LIMIT $4) page
    ) sized
WHERE bytes_before < $5 ORDER BY seq;

-- name: knowledge_base_position
-- The seq of a knowledge base's newest event; no row when the tenant has no such knowledge base.
SELECT last_seq FROM knowledge_base WHERE tenant_id = $1 AND id = $2;

-- name: knowledge_base_positions
-- The same for the knowledge bases that clients of this process listen to.
SELECT id, last_seq FROM knowledge_base WHERE id = ANY ($1::uuid[]);

-- name: knowledge_base_events
-- Events of a knowledge base behind a seq ($3): at most $4 of them, and no more after $5 bytes of payload.
SELECT seq, type, payload, created_at FROM (
    SELECT *, sum(octet_length(payload)) OVER (ORDER BY seq) - octet_length(payload) AS bytes_before FROM (
        SELECT seq, type, payload::text AS payload, created_at FROM knowledge_base_event
        WHERE tenant_id = $1 AND knowledge_base_id = $2 AND seq > $3 ORDER BY seq LIMIT $4) page
    ) sized
WHERE bytes_before < $5 ORDER BY seq;
