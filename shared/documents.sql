-- name: append_document_events
-- Appends one event of a type ($4) for each of these documents ($3) of a knowledge base ($1 tenant, $2 id) to its log, in the order of the array, with the
-- documents as they are now in this transaction. Takes the knowledge base's row lock, so lock documents before it. Documents that don't
-- exist are left out.
WITH named AS (
    SELECT row_number() OVER (ORDER BY wanted.position) AS n, count(*) OVER () AS total, document_json(d) AS document
    FROM unnest($3::uuid[]) WITH ORDINALITY AS wanted (id, position)
    JOIN document d ON d.tenant_id = $1 AND d.id = wanted.id AND d.knowledge_base_id = $2
), log AS (
    UPDATE knowledge_base SET last_seq = last_seq + (SELECT count(*) FROM named)
    WHERE tenant_id = $1 AND id = $2
    RETURNING tenant_id, id, last_seq
), event AS (
    INSERT INTO knowledge_base_event (tenant_id, knowledge_base_id, seq, type, payload)
    SELECT log.tenant_id, log.id, log.last_seq - named.total + named.n, $4::text, json_build_object('document', named.document)
    FROM log, named
    RETURNING seq, type, payload::text AS payload, created_at
)
SELECT seq, type, payload, created_at FROM event ORDER BY seq;
