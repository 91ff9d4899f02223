-- name: register_vector_indexes
-- Gives those generations an index, to be built, that have got vectors lately (of $2 entries at most) and now have more than so many ($1). One that is still
-- being made waits until it is complete: see register_generation.
WITH taken AS (
    DELETE FROM vector_change
    WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM vector_change AS change
        WHERE NOT EXISTS (
            SELECT FROM embedding_generation AS made
            WHERE made.knowledge_base_id = change.knowledge_base_id AND made.generation = change.generation AND made.state = 'building')
        LIMIT $2 FOR UPDATE OF change SKIP LOCKED))
    RETURNING knowledge_base_id, generation
), touched AS (
    SELECT knowledge_base_id, generation, (SELECT tenant_id FROM knowledge_base WHERE id = once.knowledge_base_id) AS tenant_id
    FROM (SELECT DISTINCT knowledge_base_id, generation FROM taken) AS once
)
INSERT INTO vector_index (tenant_id, knowledge_base_id, generation)
SELECT tenant_id, knowledge_base_id, generation
FROM touched
WHERE tenant_id IS NOT NULL AND 1 = (
    SELECT count(*) FROM (
        SELECT FROM chunk_embedding AS vectors
        WHERE vectors.knowledge_base_id = touched.knowledge_base_id AND vectors.generation = touched.generation
        OFFSET $1 LIMIT 1
    ) AS one_more)
ON CONFLICT DO NOTHING
RETURNING knowledge_base_id, generation;

-- name: set_horizons
-- Notes from which transaction on all writers know that these vectors are to be marked. Must not run in the transaction that registered them.
-- One that lies in the future was restored from another server's backup.
UPDATE vector_index SET horizon = pg_snapshot_xmax(pg_current_snapshot())
WHERE horizon IS NULL OR horizon > pg_snapshot_xmax(pg_current_snapshot());

-- name: due_vector_indexes
-- The indexes that can be built now: every transaction that may have added vectors without marking them has ended.
SELECT knowledge_base_id, generation
FROM vector_index
WHERE due AND not_before <= now() AND horizon <= pg_snapshot_xmin(pg_current_snapshot())
ORDER BY created_at, knowledge_base_id;

-- name: build_vector_index
-- Builds the index of a base ($1) and generation ($2) with so many MB ($3) of memory; the rows in it, or null when there is nothing to do or somebody else builds.
SELECT build_vector_index($1, $2, $3);

-- name: postpone_vector_index
-- Lets the index of a base ($1) and generation ($2) wait ($3 interval) after an error ($4).
UPDATE vector_index SET error = $4, not_before = now() + $3::interval WHERE knowledge_base_id = $1 AND generation = $2;

-- name: renew_outgrown_indexes
-- Lets those indexes be built anew for which more is pending than they hold: that takes less time than adding it.
UPDATE vector_index AS built SET due = true
WHERE relation IS NOT NULL AND NOT due AND copied < (
    SELECT count(*) FROM (
        SELECT FROM vector_pending AS pending
        WHERE pending.knowledge_base_id = built.knowledge_base_id AND pending.generation = built.generation
        LIMIT built.copied + 1
    ) AS bounded);

-- name: behind_vector_indexes
-- The built indexes to which pending vectors are to be added.
SELECT knowledge_base_id, generation
FROM vector_index AS built
WHERE relation IS NOT NULL AND NOT due AND EXISTS (
    SELECT FROM vector_pending AS pending
    WHERE pending.knowledge_base_id = built.knowledge_base_id AND pending.generation = built.generation);

-- name: extend_vector_index
-- Moves so many ($3) pending vectors into the index of a base ($1) and generation ($2); how many, or null when somebody else does.
SELECT extend_vector_index($1, $2, $3);

-- name: indexed_generations
-- Every index that there is or will be.
SELECT knowledge_base_id, generation FROM vector_index ORDER BY knowledge_base_id, generation;

-- name: count_vectors
-- Counts the vectors and chunks of an indexed base ($1) and generation ($2). An index is built anew when more than half of it has gone, or
-- when it has grown to twice its size: its lists were made for what it held then, half as many as the square of their number times four.
UPDATE vector_index AS counted SET
    vectors = vector.n, chunks = chunk.n, mean_length = chunk.mean_length,
    due = due OR (relation IS NOT NULL AND (copied > 2 * vector.n OR copied > 4 * lists * lists + 100))
FROM (
    SELECT count(*) AS n FROM chunk_embedding WHERE knowledge_base_id = $1::uuid AND generation = $2
) AS vector, (
    SELECT count(*) AS n, avg(keyword_count)::float8 AS mean_length FROM chunk WHERE knowledge_base_id::text = $1::text
) AS chunk
WHERE counted.knowledge_base_id = $1 AND counted.generation = $2
RETURNING counted.vectors, counted.due;

-- name: count_common_terms
-- Counts the chunks of a large base ($1) for each of the terms that more than one in 200 of them hold, the commonest 2,000 at most, when there are
-- a tenth more or fewer chunks than the last time: searches need not count these terms.
UPDATE vector_index SET common_of = chunks, common_terms = count_common_terms(knowledge_base_id, chunks / 200, 2000)
WHERE knowledge_base_id = $1 AND generation = $2 AND (common_of IS NULL OR abs(chunks - common_of) * 10 > common_of)
RETURNING common_of;

-- name: forget_vector_indexes
-- Gives up the indexes of generations that have fewer vectors left than this ($1).
DELETE FROM vector_index WHERE vectors < $1 RETURNING knowledge_base_id, generation;

-- name: forget_pending_vectors
-- Forgets marks for indexes that are no more.
DELETE FROM vector_pending AS pending
WHERE NOT EXISTS (
    SELECT FROM vector_index AS built
    WHERE built.knowledge_base_id = pending.knowledge_base_id AND built.generation = pending.generation);

-- name: drop_unused_vector_relations
-- Drops the tables of indexes that are no more; how many.
SELECT drop_unused_vector_relations();
