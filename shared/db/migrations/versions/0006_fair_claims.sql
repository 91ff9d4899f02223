-- Work is claimed in a fair order over tenants: start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996). What enters the queue gets a tag,
-- one more (by the tenant's weight) than the tenant's last waiting one and not less than the lowest tag that waits at all, the virtual time; the
-- lowest tag is claimed first. A tenant with 10,000 rows waiting has tags far ahead, and another one's first row goes before nearly all of them.
--
-- Tags are given by triggers: every way into the queue passes them, the statements of the previous release included.

ALTER TABLE tenant ADD COLUMN weight double precision NOT NULL DEFAULT 1 CHECK (weight BETWEEN 0.001 AND 1000); -- share of the workers, relative to other tenants

ALTER TABLE run
    ADD COLUMN fair_tag double precision NOT NULL DEFAULT 0,
    ADD COLUMN turn boolean NOT NULL DEFAULT true; -- no earlier run of its session is unfinished: set at the insert, or when that one ends
CREATE INDEX run_claimable ON run (fair_tag, id) WHERE status = 'queued' AND turn;
CREATE INDEX run_queued_by_tenant ON run (tenant_id, fair_tag) WHERE status = 'queued';

ALTER TABLE document ADD COLUMN fair_tag double precision NOT NULL DEFAULT 0;
CREATE INDEX document_claimable ON document (fair_tag, id) WHERE state = 'queued';
CREATE INDEX document_queued_by_tenant ON document (tenant_id, fair_tag) WHERE state = 'queued';

-- What waits already, as if its tenants had queued it in turns.
UPDATE run SET fair_tag = line.n FROM (SELECT id, row_number() OVER (PARTITION BY tenant_id ORDER BY id) AS n FROM run WHERE status = 'queued') line
WHERE run.id = line.id;
UPDATE document SET fair_tag = line.n
FROM (SELECT id, row_number() OVER (PARTITION BY tenant_id ORDER BY id) AS n FROM document WHERE state = 'queued') line
WHERE document.id = line.id;

CREATE INDEX outbox_in_order ON outbox ((kind = 'IngestDocument'), id);

UPDATE run SET turn = false
WHERE status = 'queued' AND EXISTS (SELECT FROM run e WHERE e.session_id = run.session_id AND e.seq < run.seq AND e.status <> 'finished');

CREATE FUNCTION tag_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.turn := NOT EXISTS (SELECT FROM run e WHERE e.session_id = NEW.session_id AND e.seq < NEW.seq AND e.status <> 'finished');
    NEW.fair_tag := greatest(
        (SELECT fair_tag FROM run WHERE status = 'queued' AND turn AND not_before <= now() ORDER BY fair_tag LIMIT 1),
        (SELECT fair_tag FROM run WHERE status = 'queued' AND tenant_id = NEW.tenant_id ORDER BY fair_tag DESC LIMIT 1),
        0) + 1 / (SELECT weight FROM tenant WHERE id = NEW.tenant_id);
    RETURN NEW;
END
$$;
CREATE TRIGGER tag_run BEFORE INSERT ON run FOR EACH ROW WHEN (NEW.status = 'queued') EXECUTE FUNCTION tag_run();

CREATE FUNCTION tag_document() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.fair_tag := greatest(
        (SELECT fair_tag FROM document WHERE state = 'queued' AND not_before <= now() ORDER BY fair_tag LIMIT 1),
        (SELECT fair_tag FROM document WHERE state = 'queued' AND tenant_id = NEW.tenant_id ORDER BY fair_tag DESC LIMIT 1),
        0) + 1 / (SELECT weight FROM tenant WHERE id = NEW.tenant_id);
    RETURN NEW;
END
$$;
CREATE TRIGGER tag_document BEFORE INSERT ON document FOR EACH ROW WHEN (NEW.state = 'queued') EXECUTE FUNCTION tag_document();
-- A document that a worker puts back keeps its place.
CREATE TRIGGER tag_document_again BEFORE UPDATE OF state ON document FOR EACH ROW
    WHEN (NEW.state = 'queued' AND OLD.state IN ('ready', 'failed')) EXECUTE FUNCTION tag_document();

-- As before, and gives the session's next run its turn. The run that has just ended is seen as such here. A run whose turn has come already is
-- not touched: a claim may hold it and wait for the session, which is locked here.
CREATE OR REPLACE FUNCTION wake_next_run(of_session uuid) RETURNS uuid LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    woken uuid;
BEGIN
    WITH next AS (
        SELECT id, status FROM run WHERE session_id = of_session AND status <> 'finished' ORDER BY seq LIMIT 1
    ), given AS (
        UPDATE run SET turn = true FROM next WHERE run.id = next.id AND next.status = 'queued' AND NOT run.turn
        RETURNING run.tenant_id, run.session_id, run.id, run.request_id
    )
    INSERT INTO outbox (kind, subject_id, body)
    SELECT 'ExecuteRun', id, json_build_object(
        'schema_version', 1, 'tenant_id', tenant_id, 'session_id', session_id, 'run_id', id, 'request_id', request_id)
    FROM given
    RETURNING subject_id INTO woken;
    RETURN woken;
END
$$;
