-- name: read_run
-- A run as clients see it.
SELECT run_json(r)::text FROM run r WHERE tenant_id = $1 AND id = $2;

-- name: find_session_of_run
-- Where a run belongs.
SELECT session_id FROM run WHERE tenant_id = $1 AND id = $2;

-- name: list_runs
-- A page of a session's runs, oldest first, above a seq ($3).
SELECT seq, run_json(r)::text AS body FROM run r WHERE tenant_id = $1 AND session_id = $2 AND seq > $3 ORDER BY seq LIMIT $4;

-- name: list_run_steps
-- A page of a run's journal, above an entry's number ($3).
SELECT n, run_step_json(s)::text AS body FROM run_step s WHERE tenant_id = $1 AND run_id = $2 AND n > $3 ORDER BY n LIMIT $4;

-- name: read_run_step
-- An entry ($3) of a run's journal as clients see it, and what was decided of it.
SELECT run_step_json(s)::text AS body, resolution FROM run_step s WHERE tenant_id = $1 AND run_id = $2 AND n = $3;

-- name: run_is_thinking
-- Whether a model is being asked in a run at this moment.
SELECT status = 'running' AND state = 'THINKING' FROM run WHERE id = $1;
