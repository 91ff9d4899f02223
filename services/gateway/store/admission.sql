-- name: count_unfinished
-- How much work of a kind ($2) a tenant has waiting or working, and the whole system.
WITH recent AS (SELECT tenant_id, amount FROM unfinished_change WHERE kind = $2)
SELECT
    coalesce((SELECT amount FROM unfinished WHERE kind = $2 AND tenant_id = $1), 0)
        + coalesce((SELECT sum(amount) FROM recent WHERE tenant_id = $1), 0)::bigint AS of_tenant,
    coalesce((SELECT amount FROM unfinished WHERE kind = $2 AND tenant_id = '00000000-0000-0000-0000-000000000000'), 0)
        + coalesce((SELECT sum(amount) FROM recent), 0)::bigint AS of_system;

-- name: fold_unfinished
-- Adds up to $1 changes to the counters of their tenants and of the system. Counters are locked in one order by all.
WITH taken AS (
    SELECT id FROM unfinished_change ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM unfinished_change c USING taken WHERE c.id = taken.id RETURNING c.kind, c.tenant_id, c.amount
), folded AS (
    INSERT INTO unfinished AS u (kind, tenant_id, amount)
    SELECT kind, coalesce(tenant_id, '00000000-0000-0000-0000-000000000000') AS counter, sum(amount) FROM gone
    GROUP BY GROUPING SETS ((kind, tenant_id), (kind)) ORDER BY kind, counter
    ON CONFLICT (kind, tenant_id) DO UPDATE SET amount = u.amount + excluded.amount
)
SELECT count(*) FROM gone;

-- name: take_tokens
-- Takes up to $2 tokens from a tenant's bucket, which gains $3 a second and holds $4 at most. What was granted, and what is left; no row for a tenant
-- that is gone.
INSERT INTO request_rate AS r (tenant_id, tokens, granted, refilled_at)
SELECT id, $4::float8 - least($2::integer, floor($4)::integer), least($2, floor($4)::integer), clock_timestamp() FROM tenant WHERE id = $1
ON CONFLICT (tenant_id) DO UPDATE SET (tokens, granted, refilled_at) = (
    SELECT held - least($2, floor(held)::integer), least($2, floor(held)::integer), at
    FROM (
        SELECT least($4, r.tokens + greatest(0, extract(epoch FROM at - r.refilled_at)::float8) * $3::float8) AS held, at
        FROM (SELECT clock_timestamp() AS at) clock
    ) bucket)
RETURNING granted, tokens;
