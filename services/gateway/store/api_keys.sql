-- name: find_api_key
-- The tenant of a key by its hash, unless it is revoked or has expired.
SELECT tenant_id FROM api_key WHERE key_hash = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now());

-- name: valid_api_keys
-- Which of these hashes belong to keys that still work.
SELECT key_hash FROM api_key WHERE key_hash = ANY ($1::bytea[]) AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now());

-- name: ensure_tenant
-- The tenant of that name ($2), made with this id ($1) when it is new.
INSERT INTO tenant (id, name) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET name = excluded.name
RETURNING id;

-- name: add_api_key
-- Stores a key by its hash; it works for a time ($5 interval, null: for ever).
INSERT INTO api_key (id, tenant_id, name, key_hash, expires_at) VALUES ($1, $2, $3, $4, now() + $5::interval);

-- name: revoke_api_key
-- Ends a key by its hash; it stays listed. One row when it worked until now.
UPDATE api_key SET revoked_at = now() WHERE key_hash = $1 AND revoked_at IS NULL RETURNING id;
