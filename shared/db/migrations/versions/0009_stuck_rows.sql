-- Everything unfinished that nobody is responsible for. Empty while the system is merely busy, and after every fault that has been mended.
--
-- Responsible for a row are, in this order: an owner whose lease stands and whose process lives; a sweeper, for some seconds after that; and for work that
-- is queued, due and first in its session whoever claims next. A worker with a free slot looks every second, so such work waits longer only because
-- every slot is taken, which is nothing to worry about, or because it is forgotten. The row doesn't tell the two apart; the others do:
--   no_worker    no process that claims work lives at all
--   unclaimed    such processes live, and nothing is being worked on
--   passed_over  work of the same tenant that stood behind it was begun while it waited
--   turn_lost    it is the first of its session, but was not given its turn: no claim will find it
-- The other reasons: lease_expired and owner_gone (a sweeper should have queued it again by now), not_sent (a wake-up that no relay has sent),
-- no_run (a session at work without an unfinished run), run_finished (a call that was begun and has no outcome, though its run has ended).

CREATE INDEX run_step_started ON run_step (tenant_id, run_id) WHERE state = 'started';

CREATE VIEW stuck (kind, tenant_id, id, state, since, reason) AS
WITH living AS MATERIALIZED (
    -- A living owner's advisory lock, named by a hash of the owner: shared/leases.py.
    SELECT objid::bigint AS hash FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = 7305::oid
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
), leased AS MATERIALIZED (
    SELECT 'run' AS kind, tenant_id, id, state, lease_until, lease_owner, fair_tag, started_at AS begun_at FROM run WHERE status = 'running'
    UNION ALL
    SELECT 'document', tenant_id, id, state, lease_until, lease_owner, fair_tag, created_at FROM document
    WHERE state NOT IN ('ready', 'failed') AND state <> 'queued'
), working AS MATERIALIZED (
    -- An oid is unsigned, a hash is not.
    SELECT leased.*, EXISTS (SELECT FROM living WHERE hash = hashtext(lease_owner::text)::bigint & 4294967295) AS owner_lives FROM leased
), waiting AS MATERIALIZED (
    SELECT 'run' AS kind, tenant_id, id, state, fair_tag, turn, greatest(not_before, created_at, (
               SELECT max(finished_at) FROM run e WHERE e.tenant_id = run.tenant_id AND e.session_id = run.session_id AND e.seq < run.seq)) AS since
    FROM run
    WHERE status = 'queued' AND not_before < now() - interval '15 seconds' AND (turn OR NOT EXISTS (
        SELECT FROM run e WHERE e.session_id = run.session_id AND e.seq < run.seq AND e.status <> 'finished'))
    UNION ALL
    SELECT 'document', tenant_id, id, state, fair_tag, true, greatest(not_before, updated_at) FROM document
    WHERE state = 'queued' AND not_before < now() - interval '15 seconds'
), judged AS (
    SELECT w.*, CASE
        WHEN NOT w.turn THEN 'turn_lost'
        WHEN NOT EXISTS (SELECT FROM living) THEN 'no_worker'
        WHEN NOT EXISTS (SELECT FROM working o WHERE o.kind = w.kind AND o.owner_lives) THEN 'unclaimed'
        WHEN EXISTS (SELECT FROM working o WHERE o.kind = w.kind AND o.tenant_id = w.tenant_id AND o.fair_tag > w.fair_tag
                                             AND o.begun_at > w.since + interval '15 seconds') THEN 'passed_over'
        END AS reason
    FROM waiting w
    WHERE w.since < now() - interval '15 seconds'
)
SELECT kind, tenant_id, id, state, since, reason FROM judged WHERE reason IS NOT NULL
UNION ALL
SELECT kind, tenant_id, id, state, coalesce(lease_until, begun_at), CASE WHEN lease_until >= now() THEN 'owner_gone' ELSE 'lease_expired' END
FROM working
WHERE lease_until IS NULL OR lease_until < now() - interval '10 seconds'
   OR (NOT owner_lives AND lease_until < now() + interval '15 seconds') -- of 30: an owner that lives has renewed it since
UNION ALL
SELECT 'wake_up', CASE WHEN body ->> 'tenant_id' ~ '^[0-9a-f-]{36}$' THEN (body ->> 'tenant_id')::uuid END, subject_id, kind, created_at, 'not_sent'
FROM outbox WHERE created_at < now() - interval '15 seconds'
UNION ALL
SELECT 'step', s.tenant_id, s.run_id, s.state, s.started_at, 'run_finished'
FROM run_step s JOIN run r ON r.tenant_id = s.tenant_id AND r.id = s.run_id
WHERE s.state = 'started' AND r.status = 'finished'
UNION ALL
-- The only part that reads a whole table: whoever asks often leaves it out, by kind <> 'session'.
SELECT 'session', s.tenant_id, s.id, s.state, s.updated_at, 'no_run'
FROM chat_session s
WHERE s.state IN ('PLANNING', 'THINKING', 'EXECUTING')
  AND NOT EXISTS (SELECT FROM run r WHERE r.session_id = s.id AND r.status <> 'finished');
