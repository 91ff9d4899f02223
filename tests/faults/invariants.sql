-- What must not be found after a case. $1, where a statement has it, is the time at which the case began. "unfinished" may take a while
-- to become empty, "kept" must be empty by then, "at_rest" soon after.

-- name: unfinished__runs_without_an_end
-- G1: runs without an end.
SELECT id, session_id, status, attempts FROM run WHERE status <> 'finished';

-- name: unfinished__documents_without_an_end
-- G1: documents without an end.
SELECT id, state, attempts FROM document WHERE state NOT IN ('ready', 'failed');

-- name: kept__runs_that_do_not_end_exactly_once
-- G1, G4: runs that do not end exactly once.
SELECT r.id, r.reason, count(e.seq) AS ends
FROM run r LEFT JOIN session_event e
    ON e.session_id = r.session_id AND e.type = 'run.finished' AND e.payload ->> 'run_id' = r.id::text
WHERE r.created_at >= $1 GROUP BY r.id, r.reason HAVING count(e.seq) <> 1;

-- name: kept__gaps_in_the_events_of_a_session
-- G4: gaps in the events of a session.
SELECT s.id, s.last_seq, count(e.seq) AS events, max(e.seq) AS newest
FROM chat_session s LEFT JOIN session_event e ON e.session_id = s.id
WHERE s.updated_at >= $1
GROUP BY s.id, s.last_seq HAVING count(e.seq) <> s.last_seq OR coalesce(max(e.seq), 0) <> s.last_seq;

-- name: kept__gaps_in_the_messages_of_a_session
-- G4: gaps in the messages of a session.
SELECT session_id, count(*) AS messages, max(seq) AS newest FROM chat_message
WHERE created_at >= $1 OR session_id IN (SELECT session_id FROM chat_message WHERE created_at >= $1)
GROUP BY session_id HAVING count(*) <> max(seq);

-- name: kept__messages_that_no_event_tells
-- G4: messages that no event tells.
SELECT m.id, m.session_id FROM chat_message m WHERE m.created_at >= $1 AND NOT EXISTS (
    SELECT FROM session_event e WHERE e.session_id = m.session_id AND e.type = 'message.created'
      AND e.payload -> 'message' ->> 'id' = m.id::text AND e.payload -> 'message' ->> 'content' = m.content);

-- name: kept__gaps_in_the_journal_of_a_run
-- G2: gaps in the journal of a run.
SELECT run_id, count(*) AS steps, max(n) AS newest FROM run_step
WHERE run_id IN (SELECT id FROM run WHERE created_at >= $1)
GROUP BY run_id HAVING count(*) <> max(n);

-- name: kept__documents_whose_chunks_do_not_count_up
-- Documents whose chunks do not count up.
SELECT d.id, d.chunk_count FROM document d WHERE d.updated_at >= $1 AND d.state = 'ready'
  AND d.chunk_count <> (SELECT count(*) FROM chunk c WHERE c.document_id = d.id AND c.version = d.current_version);

-- name: kept__chunks_that_no_search_may_see
-- Chunks that no search may see.
SELECT c.id, c.document_id FROM chunk c JOIN document d ON d.id = c.document_id WHERE d.current_version IS DISTINCT FROM c.version;

-- name: kept__chunks_without_a_vector
-- Chunks without a vector.
SELECT c.id, c.document_id FROM chunk c WHERE NOT EXISTS (SELECT FROM chunk_embedding e WHERE e.chunk_id = c.id);

-- name: kept__gaps_in_the_events_of_a_knowledge_base
-- G4: gaps in the events of a knowledge base.
SELECT knowledge_base_id, count(*) AS events, max(seq) AS newest FROM knowledge_base_event
GROUP BY knowledge_base_id HAVING count(*) <> max(seq);

-- name: at_rest__wake_ups_in_the_outbox
-- G5: wake ups in the outbox.
SELECT id, kind, subject_id FROM outbox;

-- name: at_rest__sessions_at_work
-- Sessions at work.
SELECT id, state FROM chat_session WHERE state NOT IN ('IDLE', 'FINISHED', 'ERROR');

-- name: at_rest__transactions_older_than_5_s
-- G5: transactions older than 5 s.
SELECT pid, application_name, state, left(query, 100) AS query FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
  AND now() - xact_start > interval '5 seconds';

-- name: stuck
-- Everything unfinished that nobody is responsible for.
SELECT * FROM stuck;

-- name: intervals
-- G3: what happened to runs that were worked on, in order.
SELECT e.session_id, e.seq, e.type, r.id AS run_id, r.seq AS run_seq
FROM session_event e JOIN run r ON r.session_id = e.session_id AND r.id::text = e.payload ->> 'run_id'
WHERE e.type IN ('run.state', 'run.finished') AND r.created_at >= $1
  AND NOT (e.type = 'run.finished' AND r.started_at IS NULL)
ORDER BY e.session_id, e.seq;
