-- name: run_scope
-- The tenant of an unfinished run ($1) and the knowledge bases that its session's agent was granted; no row without such a run, and one
-- row with nulls for an agent without grants.
SELECT run.tenant_id, base.id, base.embedding_model
FROM run
JOIN chat_session AS session ON session.tenant_id = run.tenant_id AND session.id = run.session_id
LEFT JOIN agent_knowledge_base AS granted ON granted.tenant_id = run.tenant_id AND granted.agent_id = session.agent_id
LEFT JOIN knowledge_base AS base ON base.tenant_id = granted.tenant_id AND base.id = granted.knowledge_base_id
WHERE run.id = $1 AND run.status <> 'finished'
ORDER BY granted.position;

-- name: tenant_scope
-- A knowledge base ($2) of a tenant ($1).
SELECT tenant_id, id, embedding_model FROM knowledge_base WHERE tenant_id = $1 AND id = $2;

-- name: nearest_chunks
-- The chunks ($4 at most) of knowledge bases ($1 tenant, $2 ids) that are nearest to the question's vector for each base ($3), with
-- their cosine similarity. Exact: "+ 0" keeps approximate indexes out. A chunk has at most two vectors (title, body), so that the nearest
-- 2 * $4 vectors of a base belong to its nearest $4 chunks at least.
SELECT chunk_id, 1 - min(distance) AS cosine
FROM unnest($2::uuid[], $3::vector[]) AS asked (knowledge_base_id, question)
JOIN knowledge_base AS base ON base.tenant_id = $1 AND base.id = asked.knowledge_base_id
CROSS JOIN LATERAL (
    SELECT chunk_id, (embedding <=> asked.question) + 0 AS distance
    FROM chunk_embedding
    WHERE knowledge_base_id = base.id
    ORDER BY distance, chunk_id
    LIMIT 2 * $4
) AS nearest
GROUP BY chunk_id
ORDER BY min(distance), chunk_id
LIMIT $4;

-- name: matching_chunks
-- The chunks ($5 at most) of knowledge bases ($1 tenant, $2 ids) that match terms ($4, tsquery literals) best by BM25 ($7 k1, $8 b), with their
-- cosine similarity to the question's vector for each base ($3). Document frequencies and mean length are those of the bases together.
-- Terms are taken from the rarest on until $6 occurrences are read: a very common term costs most and says least.
-- A term's frequency comes out of ts_rank, which is a known function of it for a vector written by shared.keyword_vector ($9: between which
-- ranks lies which frequency); reading it with unnest() takes 20 times as long.
WITH asked AS MATERIALIZED (
    SELECT base.id AS knowledge_base_id, literal::tsquery AS term
    FROM knowledge_base AS base, unnest($4::text[]) AS literal
    WHERE base.tenant_id = $1 AND base.id = ANY ($2::uuid[])
), corpus AS MATERIALIZED ( -- once, not for every posting
    SELECT count(*)::float8 AS chunks, avg(keyword_count)::float8 AS mean_length
    FROM chunk
    WHERE tenant_id = $1 AND knowledge_base_id = ANY ($2::uuid[])
), frequency AS (
    SELECT term, sum(occurrences) AS occurrences
    FROM asked
    CROSS JOIN LATERAL (
        SELECT count(*) AS occurrences
        FROM (
            SELECT
            FROM chunk
            WHERE tenant_id = $1 AND knowledge_base_id = asked.knowledge_base_id AND keywords @@ asked.term
            LIMIT 2 * $6 -- more than that is too common to be read anyway, unless there is nothing else
        ) AS counted
    ) AS counts
    GROUP BY term
), telling AS (
    SELECT term
    FROM (
        SELECT term, occurrences, sum(occurrences) OVER (ORDER BY occurrences, term) - occurrences AS before
        FROM frequency
    ) AS rarest_first
    WHERE occurrences > 0 AND before < $6
), posting AS (
    SELECT found.id, found.knowledge_base_id, found.keyword_count::float8 AS length, found.frequency,
           (count(*) OVER (PARTITION BY term))::float8 AS holders
    FROM asked
    JOIN telling USING (term)
    CROSS JOIN LATERAL (
        SELECT id, knowledge_base_id, keyword_count, width_bucket(ts_rank('{1, 1, 1, 1}', keywords, asked.term)::float8, $9::float8[])::float8 AS frequency
        FROM chunk
        WHERE tenant_id = $1 AND knowledge_base_id = asked.knowledge_base_id AND keywords @@ asked.term
        OFFSET 0 -- a fence: ranks are computed before the window function carries rows around
    ) AS found
), best AS (
    SELECT id, knowledge_base_id,
           sum(ln(1 + (chunks - holders + 0.5::float8) / (holders + 0.5::float8))
               * frequency * ($7::float8 + 1)
               / (frequency + $7::float8 * (1 - $8::float8 + $8::float8 * length / mean_length))) AS bm25
    FROM posting, corpus
    GROUP BY id, knowledge_base_id
    ORDER BY bm25 DESC, id
    LIMIT $5
)
SELECT best.id AS chunk_id, best.bm25, similarity.cosine
FROM best
JOIN unnest($2::uuid[], $3::vector[]) AS vectors (knowledge_base_id, question) USING (knowledge_base_id)
CROSS JOIN LATERAL (
    SELECT coalesce(1 - min(embedding <=> vectors.question), 0) AS cosine FROM chunk_embedding WHERE chunk_id = best.id
) AS similarity
ORDER BY best.bm25 DESC, best.id;

-- name: load_chunks
-- Chunks ($2) of a tenant ($1) with their documents' names.
SELECT chunk.id, chunk.document_id, chunk.knowledge_base_id, document.filename, chunk.version, chunk.ordinal, chunk.title,
       chunk.heading_path, chunk.content, chunk.char_start, chunk.char_end
FROM chunk
JOIN document ON document.tenant_id = chunk.tenant_id AND document.id = chunk.document_id
WHERE chunk.tenant_id = $1 AND chunk.id = ANY ($2::uuid[]);
