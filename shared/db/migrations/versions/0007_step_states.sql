-- A call of a tool of effect `once` is journalled before it is made (`started`; message_id is the id that its result's message will have), and
-- is `unknown` when nobody can say whether it took effect, until a user does: then `resolution` says who, what and when.
ALTER TABLE run_step
    DROP CONSTRAINT run_step_state_check,
    ADD CONSTRAINT run_step_state_check CHECK (state IN ('started', 'done', 'failed', 'unknown')),
    ALTER COLUMN finished_at DROP NOT NULL,
    ADD CONSTRAINT run_step_finished_check CHECK ((state = 'started') = (finished_at IS NULL)),
    ADD COLUMN resolution jsonb; -- {outcome, result, by: {id, name} of the API key, at}

CREATE OR REPLACE FUNCTION run_step_json(s run_step) RETURNS json LANGUAGE sql STABLE AS $$
    SELECT json_build_object(
        'n', s.n, 'step', s.step, 'kind', s.kind, 'state', s.state, 'message_id', s.message_id, 'tool_name', s.tool_name,
        'tool_call_id', s.tool_call_id, 'arguments', s.arguments, 'error', s.error, 'usage', s.usage, 'resolution', s.resolution,
        'started_at', s.started_at, 'finished_at', s.finished_at)
$$;
