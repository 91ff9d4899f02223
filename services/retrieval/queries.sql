-- name: run_scope
-- The tenant of an unfinished run ($1) and the knowledge bases that its session's agent was granted; no row without such a run, and one
-- row with nulls for an agent without grants.
SELECT run.tenant_id, base.id, base.embedding_model, base.embedding_generation
FROM run
JOIN chat_session AS session ON session.tenant_id = run.tenant_id AND session.id = run.session_id
LEFT JOIN agent_knowledge_base AS granted ON granted.tenant_id = run.tenant_id AND granted.agent_id = session.agent_id
LEFT JOIN knowledge_base AS base ON base.tenant_id = granted.tenant_id AND base.id = granted.knowledge_base_id
WHERE run.id = $1 AND run.status <> 'finished'
ORDER BY granted.position;

-- name: tenant_scope
-- A knowledge base ($2) of a tenant ($1).
SELECT tenant_id, id, embedding_model, embedding_generation FROM knowledge_base WHERE tenant_id = $1 AND id = $2;

-- name: nearest_chunks
-- The chunks ($5 at most) of knowledge bases ($1 tenant, $2 ids, $3 which of their embeddings) that are nearest to the question's vector for each
-- base ($4), with their cosine similarity, and on each row the bases that an index was enough for. A base that has an index is searched by it, any
-- other exactly. A chunk has at most two vectors (title, body); the title counts as much as $6 says. Of an index the 2 * $5 nearest of each of both
-- are taken: never of both together, since a title that hundreds of chunks share would leave no room for their bodies.
WITH nearest AS MATERIALIZED (
    SELECT base.id AS knowledge_base_id, found.chunk_id, found.body, found.title, found.complete, found.indexed
    FROM unnest($2::uuid[], $3::integer[], $4::vector[]) AS asked (knowledge_base_id, generation, question)
    JOIN knowledge_base AS base ON base.tenant_id = $1 AND base.id = asked.knowledge_base_id
    LEFT JOIN vector_index AS built
        ON built.knowledge_base_id = base.id AND built.generation = asked.generation AND built.relation IS NOT NULL
    CROSS JOIN LATERAL (
        (SELECT chunk_id, body, title, true AS complete, false AS indexed
         FROM (
             SELECT chunk_id, 1 - min(distance) FILTER (WHERE field = 'body') AS body, 1 - min(distance) FILTER (WHERE field = 'title') AS title
             FROM (
                 SELECT chunk_id, field, embedding <=> asked.question AS distance
                 FROM chunk_embedding
                 WHERE knowledge_base_id = base.id AND generation = asked.generation AND built.relation IS NULL
             ) AS vectors
             GROUP BY chunk_id
         ) AS chunks
         ORDER BY coalesce(body * (1 - $6::float8) + title * $6::float8, body, title) DESC, chunk_id
         LIMIT $5)
        UNION ALL
        SELECT found_id, 1 - min(distance) FILTER (WHERE found_field = 'body'), 1 - min(distance) FILTER (WHERE found_field = 'title'),
               false, bool_and(indexed)
        FROM nearest_indexed_vectors(base.id, asked.generation, asked.question, 2 * $5::integer, NULL)
        WHERE built.relation IS NOT NULL
        GROUP BY found_id
    ) AS found
)
SELECT nearest.chunk_id, coalesce(fields.body * (1 - $6::float8) + fields.title * $6::float8, fields.body, fields.title) AS cosine,
       ARRAY(SELECT knowledge_base_id FROM nearest GROUP BY knowledge_base_id HAVING bool_and(indexed)) AS indexed
FROM nearest
JOIN unnest($2::uuid[], $3::integer[], $4::vector[]) AS vectors (knowledge_base_id, generation, question) USING (knowledge_base_id)
CROSS JOIN LATERAL ( -- with its other vector, where it has one that was not among those of the index
    SELECT coalesce(nearest.body, max(1 - (embedding <=> vectors.question)) FILTER (WHERE field = 'body')) AS body,
           coalesce(nearest.title, max(1 - (embedding <=> vectors.question)) FILTER (WHERE field = 'title')) AS title
    FROM chunk_embedding
    WHERE NOT nearest.complete AND (nearest.body IS NULL OR nearest.title IS NULL)
      AND chunk_id = nearest.chunk_id AND generation = vectors.generation
      AND field = CASE WHEN nearest.body IS NULL THEN 'body' ELSE 'title' END
) AS fields
ORDER BY cosine DESC, nearest.chunk_id
LIMIT $5;

-- name: nearest_filtered_chunks
-- The same among documents that a filter lets through ($6 ids, $7 media types, $8 all of these tags, $9 one of these, $10 first and $11 last day; null: any).
-- They are counted first: an index is of use where they have many chunks (over $12), and so large a share of its rows that it won't read
-- much more than was asked for. Otherwise all of theirs are looked at. $13 is the title's share.
WITH picked AS MATERIALIZED (
    SELECT id, knowledge_base_id, chunk_count FROM document
    WHERE tenant_id = $1 AND knowledge_base_id = ANY ($2::uuid[])
      AND ($6::uuid[] IS NULL OR id = ANY ($6::uuid[]))
      AND ($7::text[] IS NULL OR media_type = ANY ($7::text[]))
      AND ($8::text[] IS NULL OR tags @> $8::text[])
      AND ($9::text[] IS NULL OR tags && $9::text[])
      AND ($10::date IS NULL OR coalesce(document_date, (created_at AT TIME ZONE 'UTC')::date) >= $10::date)
      AND ($11::date IS NULL OR coalesce(document_date, (created_at AT TIME ZONE 'UTC')::date) <= $11::date)
), asked AS MATERIALIZED (
    SELECT base.id AS knowledge_base_id, asked.generation, asked.question, picked.documents,
           built.relation IS NOT NULL AND picked.chunks > $12 AND picked.chunks * 5000 > 4 * $5 * built.copied AS by_index
    FROM unnest($2::uuid[], $3::integer[], $4::vector[]) AS asked (knowledge_base_id, generation, question)
    JOIN knowledge_base AS base ON base.tenant_id = $1 AND base.id = asked.knowledge_base_id
    JOIN (
        SELECT knowledge_base_id, sum(chunk_count) AS chunks, array_agg(id) AS documents FROM picked GROUP BY knowledge_base_id
    ) AS picked ON picked.knowledge_base_id = base.id
    LEFT JOIN vector_index AS built
        ON built.knowledge_base_id = base.id AND built.generation = asked.generation AND built.relation IS NOT NULL
), nearest AS MATERIALIZED (
    SELECT asked.knowledge_base_id, found.chunk_id, found.body, found.title, found.complete, found.indexed
    FROM asked
    CROSS JOIN LATERAL (
        (SELECT chunk_id, body, title, true AS complete, false AS indexed
         FROM (
             SELECT chunk_id, 1 - min(distance) FILTER (WHERE field = 'body') AS body, 1 - min(distance) FILTER (WHERE field = 'title') AS title
             FROM (
                 SELECT vectors.chunk_id, vectors.field, vectors.embedding <=> asked.question AS distance
                 FROM picked
                 CROSS JOIN LATERAL ( -- fences: from documents to chunks to vectors, never through all chunks of the tenant
                     SELECT id FROM chunk WHERE tenant_id = $1 AND document_id = picked.id OFFSET 0
                 ) AS chunk
                 CROSS JOIN LATERAL (
                     SELECT chunk_id, field, embedding FROM chunk_embedding WHERE chunk_id = chunk.id AND generation = asked.generation OFFSET 0
                 ) AS vectors
                 WHERE picked.knowledge_base_id = asked.knowledge_base_id AND NOT asked.by_index
             ) AS vectors
             GROUP BY chunk_id
         ) AS chunks
         ORDER BY coalesce(body * (1 - $13::float8) + title * $13::float8, body, title) DESC, chunk_id
         LIMIT $5)
        UNION ALL
        SELECT found_id, 1 - min(distance) FILTER (WHERE found_field = 'body'), 1 - min(distance) FILTER (WHERE found_field = 'title'),
               false, bool_and(indexed)
        FROM nearest_indexed_vectors(asked.knowledge_base_id, asked.generation, asked.question, 2 * $5::integer, asked.documents)
        WHERE asked.by_index
        GROUP BY found_id
    ) AS found
)
SELECT nearest.chunk_id, coalesce(fields.body * (1 - $13::float8) + fields.title * $13::float8, fields.body, fields.title) AS cosine,
       ARRAY(SELECT knowledge_base_id FROM nearest GROUP BY knowledge_base_id HAVING bool_and(indexed)) AS indexed
FROM nearest
JOIN unnest($2::uuid[], $3::integer[], $4::vector[]) AS vectors (knowledge_base_id, generation, question) USING (knowledge_base_id)
CROSS JOIN LATERAL ( -- with its other vector, where it has one that was not among those of the index
    SELECT coalesce(nearest.body, max(1 - (embedding <=> vectors.question)) FILTER (WHERE field = 'body')) AS body,
           coalesce(nearest.title, max(1 - (embedding <=> vectors.question)) FILTER (WHERE field = 'title')) AS title
    FROM chunk_embedding
    WHERE NOT nearest.complete AND (nearest.body IS NULL OR nearest.title IS NULL)
      AND chunk_id = nearest.chunk_id AND generation = vectors.generation
      AND field = CASE WHEN nearest.body IS NULL THEN 'body' ELSE 'title' END
) AS fields
ORDER BY cosine DESC, nearest.chunk_id
LIMIT $5;

-- name: matching_chunks
-- The chunks ($6 at most) of knowledge bases ($1 tenant, $2 ids, $3 which of their embeddings) that match terms ($5, tsquery literals) best by BM25
-- ($8 k1, $9 b), with their cosine similarity to the question's vector for each base ($4). Document frequencies and mean length are those of the
-- bases together; those of large bases were counted a while ago. Terms are taken from the rarest on, as long as no more than $7 occurrences are
-- read: a very common term costs most and says least. Where all are that common, so many chunks that hold the rarest are looked at.
-- A term's frequency comes out of ts_rank, which is a known function of it for a vector written by shared.keyword_vector ($10: between which
-- ranks lies which frequency); reading it with unnest() takes 20 times as long.
-- With a filter ($11) only chunks of documents that it lets through ($12 to $17, as in nearest_filtered_chunks); scores stay as they are without one.
-- $18 is the title's share of a similarity. Each row repeats what each of the terms is worth, its idf, in their order.
WITH asked AS MATERIALIZED ( -- of this tenant; below, a base's id is condition enough, and leaves the planner one index to choose
    SELECT base.id AS knowledge_base_id, literal::tsquery AS term, (counted.common_terms ->> literal::tsquery::text)::bigint AS holders
    FROM knowledge_base AS base
    CROSS JOIN unnest($5::text[]) AS literal
    LEFT JOIN vector_index AS counted
        ON counted.knowledge_base_id = base.id AND counted.generation = base.embedding_generation
    WHERE base.tenant_id = $1 AND base.id = ANY ($2::uuid[])
), corpus AS MATERIALIZED ( -- once, not for every posting
    SELECT sum(size.chunks)::float8 AS chunks, sum(size.terms) / sum(size.chunks)::float8 AS mean_length
    FROM knowledge_base AS base
    LEFT JOIN vector_index AS counted
        ON counted.knowledge_base_id = base.id AND counted.generation = base.embedding_generation AND counted.chunks > 0
    CROSS JOIN LATERAL (
        SELECT counted.chunks, counted.chunks * counted.mean_length AS terms WHERE counted.chunks IS NOT NULL
        UNION ALL
        SELECT count(*), sum(keyword_count)::float8 FROM chunk
        WHERE knowledge_base_id::text = base.id::text AND counted.chunks IS NULL -- as in the index chunk_counts
        HAVING count(*) > 0
    ) AS size
    WHERE base.tenant_id = $1 AND base.id = ANY ($2::uuid[])
), picked AS MATERIALIZED ( -- not read without a filter
    SELECT id FROM document
    WHERE tenant_id = $1 AND knowledge_base_id = ANY ($2::uuid[])
      AND ($12::uuid[] IS NULL OR id = ANY ($12::uuid[]))
      AND ($13::text[] IS NULL OR media_type = ANY ($13::text[]))
      AND ($14::text[] IS NULL OR tags @> $14::text[])
      AND ($15::text[] IS NULL OR tags && $15::text[])
      AND ($16::date IS NULL OR coalesce(document_date, (created_at AT TIME ZONE 'UTC')::date) >= $16::date)
      AND ($17::date IS NULL OR coalesce(document_date, (created_at AT TIME ZONE 'UTC')::date) <= $17::date)
), frequency AS (
    SELECT term, sum(occurrences)::bigint AS occurrences
    FROM asked
    CROSS JOIN LATERAL (
        SELECT asked.holders AS occurrences WHERE asked.holders IS NOT NULL -- a common term of a large base
        UNION ALL
        SELECT count(*)
        FROM (
            SELECT
            FROM chunk
            WHERE knowledge_base_id = asked.knowledge_base_id AND keywords @@ asked.term AND asked.holders IS NULL
            LIMIT $7 + 1 -- more than that is too common to be read anyway, unless there is nothing else
        ) AS counted
        HAVING asked.holders IS NULL
    ) AS counts
    GROUP BY term
), telling AS MATERIALIZED ( -- with what each is worth; chunks may be an old count
    SELECT term, ln(1 + (greatest(chunks, holders) - holders + 0.5::float8) / (holders + 0.5::float8)) AS idf
    FROM (
        SELECT term, occurrences::float8 AS holders, occurrences, sum(occurrences) OVER (ORDER BY occurrences, term) AS up_to_here
        FROM frequency
        WHERE occurrences > 0
    ) AS rarest_first, corpus
    WHERE up_to_here <= $7 OR up_to_here = occurrences
), posting AS (
    SELECT found.id, found.knowledge_base_id,
           telling.idf * found.frequency * ($8::float8 + 1)
           / (found.frequency + $8::float8 * (1 - $9::float8) + $8::float8 * $9::float8 / corpus.mean_length * found.keyword_count) AS gain
    FROM corpus, asked
    JOIN telling USING (term)
    CROSS JOIN LATERAL (
        SELECT id, knowledge_base_id, keyword_count,
               width_bucket(ts_rank('{1, 1, 1, 1}', keywords, asked.term)::float8, $10::float8[])::float8 AS frequency
        FROM chunk
        WHERE knowledge_base_id = asked.knowledge_base_id AND keywords @@ asked.term
          AND (NOT $11::boolean OR document_id IN (SELECT id FROM picked))
        LIMIT $7 + 1 -- of a common term that stands alone
    ) AS found
), best AS (
    SELECT id, knowledge_base_id, sum(gain) AS bm25
    FROM posting
    GROUP BY id, knowledge_base_id
    ORDER BY bm25 DESC, id
    LIMIT $6
)
SELECT best.id AS chunk_id, best.bm25, similarity.cosine,
       ARRAY(
           SELECT ln(1 + (greatest(chunks, occurrences) - occurrences + 0.5::float8) / (occurrences + 0.5::float8))
           FROM unnest($5::text[]) WITH ORDINALITY AS asked_for (literal, number)
           JOIN frequency ON frequency.term = asked_for.literal::tsquery
           CROSS JOIN corpus
           ORDER BY asked_for.number
       ) AS term_weights
FROM best
JOIN unnest($2::uuid[], $3::integer[], $4::vector[]) AS vectors (knowledge_base_id, generation, question) USING (knowledge_base_id)
CROSS JOIN LATERAL (
    SELECT coalesce(body * (1 - $18::float8) + title * $18::float8, body, title, 0) AS cosine
    FROM (
        SELECT max(1 - (embedding <=> vectors.question)) FILTER (WHERE field = 'body') AS body,
               max(1 - (embedding <=> vectors.question)) FILTER (WHERE field = 'title') AS title
        FROM chunk_embedding WHERE chunk_id = best.id AND generation = vectors.generation
    ) AS fields
) AS similarity
ORDER BY best.bm25 DESC, best.id;

-- name: load_chunks
-- Chunks ($2) of a tenant ($1) with their documents' names, and the larger passages (parents) that are returned for them where there are any.
SELECT chunk.id, chunk.document_id, chunk.knowledge_base_id, document.filename, chunk.version, chunk.ordinal, chunk.title,
       chunk.heading_path, chunk.content, chunk.char_start, chunk.char_end, chunk.header_chars, chunk.parent_id,
       chunk.page_first, chunk.page_last
FROM chunk
JOIN document ON document.tenant_id = chunk.tenant_id AND document.id = chunk.document_id
WHERE chunk.tenant_id = $1 AND chunk.id = ANY ($2::uuid[]);

-- name: load_parents
-- Parents ($2) of a tenant ($1).
SELECT id, title, heading_path, content, char_start, char_end, header_chars, page_first, page_last
FROM chunk_parent
WHERE tenant_id = $1 AND id = ANY ($2::uuid[]);
