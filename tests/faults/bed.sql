-- What the bed asks the database about the system.

-- name: see_all_accounts
-- Lets the owner of the database see the sessions of the services' accounts, and end them.
DO $$
DECLARE account name;
BEGIN
    FOR account IN SELECT r.rolname FROM pg_roles r JOIN pg_auth_members m ON m.roleid = r.oid WHERE m.member = current_user::regrole
    LOOP
        EXECUTE format('GRANT %I TO CURRENT_USER WITH INHERIT TRUE', account);
    END LOOP;
END $$;

-- name: holders
-- The running runs, with the port of the connection by which their owner says that it is alive (shared/leases.py).
SELECT r.id::text AS run_id, a.client_port
FROM run r
JOIN pg_locks l ON l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
    AND l.objid::bigint = hashtext(r.lease_owner::text)::bigint & 4294967295
JOIN pg_stat_activity a ON a.pid = l.pid
WHERE r.status = 'running';

-- name: next_event
-- When a run ($1, as text) went on after a time ($2).
SELECT min(e.created_at) FROM session_event e JOIN run r ON r.session_id = e.session_id
WHERE r.id = $1::text::uuid AND e.payload ->> 'run_id' = $1 AND e.type IN ('run.state', 'run.finished') AND e.created_at > $2;

-- name: claims_after
-- When runs ($1, as texts) were claimed for the first time after a moment ($2).
SELECT r.id::text AS run_id, min(e.created_at) AS at FROM run r JOIN session_event e ON e.session_id = r.session_id
WHERE r.id::text = ANY ($1) AND e.payload ->> 'run_id' = r.id::text AND e.type = 'run.state' AND e.payload ->> 'state' = 'PLANNING'
  AND e.created_at > $2
GROUP BY r.id;
