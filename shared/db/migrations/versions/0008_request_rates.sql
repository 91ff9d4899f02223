-- Unfinished work is counted as it comes and goes, so that admission reads a few rows and never counts 10,000 of them. Every change is a row of its
-- own: nobody waits for a counter that somebody else is changing. Gateways fold the changes into `unfinished` every second.
-- Triggers do it: no statement can forget it, those of the previous release included.
CREATE TABLE unfinished (
    kind      text NOT NULL CHECK (kind IN ('run', 'document')),
    tenant_id uuid NOT NULL, -- all zeros: of the whole system
    amount    bigint NOT NULL,
    PRIMARY KEY (kind, tenant_id)
) WITH (fillfactor = 50);

CREATE TABLE unfinished_change (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind      text NOT NULL,
    tenant_id uuid NOT NULL,
    amount    integer NOT NULL
);

-- As its owner: whoever may write a run need not see the counters.
CREATE FUNCTION note_unfinished() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO unfinished_change (kind, tenant_id, amount)
    VALUES (TG_ARGV[0], coalesce(NEW.tenant_id, OLD.tenant_id), TG_ARGV[1]::integer);
    RETURN NULL;
END
$$;
CREATE TRIGGER run_begins AFTER INSERT ON run FOR EACH ROW
    WHEN (NEW.status <> 'finished') EXECUTE FUNCTION note_unfinished('run', '1');
CREATE TRIGGER run_ends AFTER UPDATE OF status ON run FOR EACH ROW
    WHEN (OLD.status <> 'finished' AND NEW.status = 'finished') EXECUTE FUNCTION note_unfinished('run', '-1');
CREATE TRIGGER run_vanishes AFTER DELETE ON run FOR EACH ROW
    WHEN (OLD.status <> 'finished') EXECUTE FUNCTION note_unfinished('run', '-1');
CREATE TRIGGER document_begins AFTER INSERT ON document FOR EACH ROW
    WHEN (NEW.state NOT IN ('ready', 'failed')) EXECUTE FUNCTION note_unfinished('document', '1');
CREATE TRIGGER document_begins_again AFTER UPDATE OF state ON document FOR EACH ROW
    WHEN (OLD.state IN ('ready', 'failed') AND NEW.state NOT IN ('ready', 'failed')) EXECUTE FUNCTION note_unfinished('document', '1');
CREATE TRIGGER document_ends AFTER UPDATE OF state ON document FOR EACH ROW
    WHEN (OLD.state NOT IN ('ready', 'failed') AND NEW.state IN ('ready', 'failed')) EXECUTE FUNCTION note_unfinished('document', '-1');
CREATE TRIGGER document_vanishes AFTER DELETE ON document FOR EACH ROW
    WHEN (OLD.state NOT IN ('ready', 'failed')) EXECUTE FUNCTION note_unfinished('document', '-1');

-- What is unfinished now; the triggers above have locked both tables against writers until the commit.
INSERT INTO unfinished_change (kind, tenant_id, amount)
SELECT 'run', tenant_id, count(*) FROM run WHERE status <> 'finished' GROUP BY tenant_id
UNION ALL
SELECT 'document', tenant_id, count(*) FROM document WHERE state NOT IN ('ready', 'failed') GROUP BY tenant_id;

-- One token bucket a tenant, from which gateways take tokens in batches. After a crash all buckets are full: that is no loss.
CREATE UNLOGGED TABLE request_rate (
    tenant_id   uuid PRIMARY KEY REFERENCES tenant ON DELETE CASCADE,
    tokens      double precision NOT NULL, -- at refilled_at
    granted     integer NOT NULL,          -- by the last statement, for its own RETURNING
    refilled_at timestamptz NOT NULL
) WITH (fillfactor = 50);

ALTER TABLE api_key ADD COLUMN expires_at timestamptz; -- null: never

-- `position` is how many runs of its session a queued run has before it.
CREATE OR REPLACE FUNCTION run_json(r run) RETURNS json LANGUAGE sql STABLE AS $$
    SELECT json_build_object(
        'id', r.id, 'session_id', r.session_id, 'state', r.state, 'reason', r.reason, 'step', r.step, 'error', r.error, 'usage', r.usage,
        'position', CASE WHEN r.status = 'queued' THEN (
            SELECT count(*) FROM run ahead WHERE ahead.session_id = r.session_id AND ahead.seq < r.seq AND ahead.status <> 'finished') ELSE 0 END,
        'created_at', r.created_at, 'started_at', r.started_at, 'finished_at', r.finished_at)
$$;

-- After a run ($2 seq) of a session has ended: tells those that wait behind it their new places, and returns how many there are. The session's
-- row must be locked; the snapshot is taken here and not when the calling statement began, so that it holds all that was committed before.
CREATE FUNCTION announce_positions(of_session uuid, behind bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    moved bigint;
BEGIN
    WITH line AS (
        SELECT id, seq, status, row_number() OVER (ORDER BY seq) - 1 AS position
        FROM run WHERE session_id = of_session AND status <> 'finished'
    ), waiting AS (
        SELECT id, position, row_number() OVER (ORDER BY seq) AS n, count(*) OVER () AS total
        FROM line WHERE status = 'queued' AND seq > behind
    ), log AS (
        UPDATE chat_session SET last_seq = last_seq + total.amount
        FROM (SELECT max(total) AS amount FROM waiting) total
        WHERE id = of_session AND total.amount > 0
        RETURNING tenant_id, id, last_seq - total.amount AS seq_before
    )
    INSERT INTO session_event (tenant_id, session_id, seq, type, payload)
    SELECT log.tenant_id, log.id, log.seq_before + waiting.n, 'run.queued',
           json_build_object('run_id', waiting.id, 'position', waiting.position)
    FROM log, waiting;
    GET DIAGNOSTICS moved = ROW_COUNT;
    RETURN moved;
END
$$;
