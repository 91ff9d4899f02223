-- After a run of a session has ended: writes the wake-up for the session's next queued run, if there is one, and returns its id.
-- A function, because its snapshot must be taken under the session's lock and not when the calling statement began: a message that is being
-- posted at this moment is either seen here, or its own wake-up comes after this commit.
CREATE FUNCTION wake_next_run(of_session uuid) RETURNS uuid LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    woken uuid;
BEGIN
    INSERT INTO outbox (kind, subject_id, body)
    SELECT 'ExecuteRun', id, json_build_object(
        'schema_version', 1, 'tenant_id', tenant_id, 'session_id', session_id, 'run_id', id, 'request_id', request_id)
    FROM run WHERE session_id = of_session AND status = 'queued' ORDER BY seq LIMIT 1
    RETURNING subject_id INTO woken;
    RETURN woken;
END
$$;
