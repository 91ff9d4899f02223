-- name: take_outbox
-- Locks the oldest wake-ups that no other relay is sending; those for documents come last, nobody waits at the screen for them.
SELECT id, kind, body FROM outbox ORDER BY (kind = 'IngestDocument'), id LIMIT $1 FOR UPDATE SKIP LOCKED;

-- name: delete_outbox
-- Forgets wake-ups that the broker has confirmed.
DELETE FROM outbox WHERE id = ANY ($1::bigint[]);

-- name: add_outbox
-- Adds a wake-up for one run or document.
INSERT INTO outbox (kind, subject_id, body) VALUES ($1, $2, $3);
