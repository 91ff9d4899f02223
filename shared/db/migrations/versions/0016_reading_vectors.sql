-- Searching and extending indexes as in 0013, but
--
-- * Chunk by chunk. A generation that has just been made is in no statistics: the planner takes it for one row, and reads all of it, for each candidate
--   anew. A search of 5,000 chunks took a second and more from the cut-over until the next ANALYZE; one of 100,000 would have taken half a minute.
--   "OFFSET 0" keeps it from joining in another way, "+ 0" from using the index of generations.
-- * With the field of each vector: who has that needn't look up again what was found. No release has called the function without.
-- * Titles and bodies apart, `wanted` of each. Hundreds of chunks may share a title, whose vectors would leave no room for bodies.
-- * With a filter more lists are read: of documents that are all far from a question, those before lost a quarter of the best ten.

-- Whether a generation has titles.
CREATE INDEX chunk_embedding_titles ON chunk_embedding (knowledge_base_id, generation) WHERE field = 'title';

DROP FUNCTION nearest_indexed_vectors(uuid, integer, vector, integer, uuid[]);
CREATE FUNCTION nearest_indexed_vectors(base uuid, of_generation integer, question vector, wanted integer, documents uuid[])
RETURNS TABLE (found_id uuid, found_field text, distance double precision, indexed boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 100
SET search_path = public, pg_temp SET enable_seqscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    name text;
    dims integer;
    cells integer;
    fields text[] := '{body}';
    wanted_field text;
    found bigint;
    n bigint := 0;
BEGIN
    SELECT relation, dimension, lists INTO name, dims, cells FROM vector_index
    WHERE knowledge_base_id = base AND generation = of_generation AND 1000 >= (
        SELECT count(*) FROM (SELECT FROM vector_pending WHERE knowledge_base_id = base AND generation = of_generation LIMIT 1001) AS pending);
    IF EXISTS (SELECT FROM chunk_embedding WHERE knowledge_base_id = base AND generation = of_generation AND field = 'title') THEN
        fields := '{body,title}';
    END IF;
    IF dims = vector_dims(question) THEN
        -- So many of the lists as questions that are far from everything need, or from all that a filter lets through; all of few lists.
        PERFORM set_config('ivfflat.probes', greatest(20, ceil(CASE WHEN documents IS NULL THEN 4 ELSE 12 END * sqrt(cells)))::text, true);
        BEGIN
            FOREACH wanted_field IN ARRAY fields LOOP
                RETURN QUERY EXECUTE format(
                    'SELECT * FROM ('
                    '    SELECT e.chunk_id, e.field, e.embedding <=> $1, true FROM vector_indexes.%I d'
                    '    CROSS JOIN LATERAL ('
                    '        SELECT chunk_id, field, embedding FROM chunk_embedding'
                    '        WHERE chunk_id = d.chunk_id AND generation + 0 = $2 AND field = d.field OFFSET 0'
                    '    ) AS e'
                    '    WHERE d.field = $6 AND ($3::uuid[] IS NULL OR d.document_id = ANY ($3))'
                    '    ORDER BY d.embedding <=> $1::halfvec(%s) LIMIT $4'
                    ') AS by_index'
                    ' UNION ALL '
                    'SELECT * FROM ('
                    '    SELECT e.chunk_id, e.field, e.embedding <=> $1, true FROM vector_pending p'
                    '    CROSS JOIN LATERAL ('
                    '        SELECT chunk_id, field, embedding FROM chunk_embedding'
                    '        WHERE chunk_id = p.chunk_id AND generation + 0 = $2 AND field = p.field OFFSET 0'
                    '    ) AS e'
                    '    WHERE p.knowledge_base_id = $5 AND p.generation = $2 AND p.field = $6 AND ($3::uuid[] IS NULL OR EXISTS ('
                    '        SELECT FROM chunk c WHERE c.id = p.chunk_id AND c.document_id = ANY ($3)))'
                    '    ORDER BY 3 LIMIT $4'
                    ') AS pending', name, dims)
                USING question, of_generation, documents, wanted, base, wanted_field;
                GET DIAGNOSTICS found = ROW_COUNT;
                n := n + found;
            END LOOP;
        EXCEPTION WHEN undefined_table THEN
            n := 0;
        END;
    END IF;
    IF n < wanted THEN
        FOREACH wanted_field IN ARRAY fields LOOP
            RETURN QUERY
            SELECT e.chunk_id, e.field, (e.embedding <=> question) + 0 AS near, false
            FROM chunk_embedding e
            WHERE e.knowledge_base_id = base AND e.generation = of_generation AND e.field = wanted_field
            AND (documents IS NULL OR EXISTS (SELECT FROM chunk c WHERE c.id = e.chunk_id AND c.document_id = ANY (documents)))
            ORDER BY near, e.chunk_id
            LIMIT wanted;
        END LOOP;
    END IF;
END
$$;

REVOKE ALL ON FUNCTION nearest_indexed_vectors(uuid, integer, vector, integer, uuid[]) FROM PUBLIC;

CREATE OR REPLACE FUNCTION extend_vector_index(base uuid, of_generation integer, at_most integer) RETURNS bigint
LANGUAGE plpgsql VOLATILE STRICT SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    name text;
    n bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(7308, hashtext(base::text || of_generation)) THEN
        RETURN NULL;
    END IF;
    SELECT relation INTO name FROM vector_index WHERE knowledge_base_id = base AND generation = of_generation;
    IF name IS NULL THEN
        RETURN NULL;
    END IF;
    EXECUTE format(
        'WITH taken AS ('
        '    DELETE FROM vector_pending WHERE ctid = ANY (ARRAY('
        '        SELECT ctid FROM vector_pending WHERE knowledge_base_id = $1 AND generation = $2 LIMIT $3))'
        '    RETURNING chunk_id, field'
        '), moved AS ('
        '    INSERT INTO vector_indexes.%I'
        '    SELECT e.chunk_id, e.field, c.document_id, e.embedding FROM taken'
        '    CROSS JOIN LATERAL ('
        '        SELECT tenant_id, chunk_id, field, embedding FROM chunk_embedding'
        '        WHERE chunk_id = taken.chunk_id AND generation + 0 = $2 AND field = taken.field OFFSET 0'
        '    ) AS e'
        '    JOIN chunk c ON c.tenant_id = e.tenant_id AND c.id = e.chunk_id'
        '    ON CONFLICT DO NOTHING'
        ') SELECT count(*) FROM taken', name)
    INTO n USING base, of_generation, at_most;
    UPDATE vector_index SET copied = copied + n WHERE knowledge_base_id = base AND generation = of_generation AND n > 0;
    RETURN n;
END
$$;
