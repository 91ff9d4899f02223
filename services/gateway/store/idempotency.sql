-- name: claim_idempotency_key
-- Takes a key ($2) for a request with a fingerprint ($3), unless it was used within the last $4 (interval). Of two requests at once the second waits
-- here for the first one's commit. One row when taken.
INSERT INTO idempotency_key (tenant_id, key, fingerprint, status, response) VALUES ($1, $2, $3, 0, 'null')
ON CONFLICT (tenant_id, key) DO UPDATE SET fingerprint = excluded.fingerprint, status = 0, response = 'null', created_at = now()
WHERE idempotency_key.created_at < now() - $4::interval
RETURNING key;

-- name: read_idempotency_key
-- What a key was used for.
SELECT fingerprint, response::text AS response FROM idempotency_key WHERE tenant_id = $1 AND key = $2;

-- name: key_is_used
-- Whether a key was used within the last $3 (interval).
SELECT EXISTS (SELECT FROM idempotency_key WHERE tenant_id = $1 AND key = $2 AND created_at >= now() - $3::interval);

-- name: finish_idempotency_key
-- Keeps the answer ($3 status, $4 body) with the key.
UPDATE idempotency_key SET status = $3, response = $4 WHERE tenant_id = $1 AND key = $2;

-- name: forget_idempotency_keys
-- Removes keys older than an interval, some at a time.
DELETE FROM idempotency_key WHERE (tenant_id, key) IN (
    SELECT tenant_id, key FROM idempotency_key WHERE created_at < now() - $1::interval ORDER BY created_at LIMIT 1000 FOR UPDATE SKIP LOCKED);
