-- Approximate indexes for large knowledge bases (docs/decisions/0019-vector-search.md).
--
-- chunk_embedding is the truth. A generation of a base with many vectors has a row in vector_index, and once that was built a table in the schema
-- vector_indexes with a copy in half precision under IVFFlat. The copy holds what was there when it was built and what was moved to it since;
-- what has come in between is in vector_pending; what was deleted is found out by joining the truth. So an index and its pending rows are complete in
-- every snapshot, writers wait for no index, and losing one costs speed only.
--
-- Services may not make tables: functions do that, with the owner's rights. Names are made of ids here and nowhere else.

CREATE SCHEMA vector_indexes;

CREATE TABLE vector_index (
    tenant_id         uuid NOT NULL,
    knowledge_base_id uuid NOT NULL,
    generation        integer NOT NULL,
    relation          text,                              -- in vector_indexes; null until it was built the first time
    dimension         integer,
    lists             integer,                           -- of its index
    copied            bigint NOT NULL DEFAULT 0,         -- rows in the relation, those included that have gone from chunk_embedding
    vectors           bigint,                            -- in chunk_embedding, when they were counted last
    chunks            bigint,                            -- of the base, when they were counted last, and the mean of their keyword_count
    mean_length       double precision,
    common_terms      jsonb,                             -- how many chunks hold each of the terms that many hold, by the term as a tsquery
    common_of         bigint,                            -- of how many chunks that was counted
    due               boolean NOT NULL DEFAULT true,     -- is to be built, or built anew
    horizon           xid8,                              -- transactions before this one may not have seen the row, and so not have written to vector_pending
    not_before        timestamptz NOT NULL DEFAULT now(), -- of the next attempt to build
    error             text,
    builds            integer NOT NULL DEFAULT 0,
    created_at        timestamptz NOT NULL DEFAULT now(),
    built_at          timestamptz,
    PRIMARY KEY (knowledge_base_id, generation),
    FOREIGN KEY (tenant_id, knowledge_base_id) REFERENCES knowledge_base ON DELETE CASCADE
);
CREATE UNIQUE INDEX vector_index_by_relation ON vector_index (relation);
CREATE INDEX vector_index_by_tenant ON vector_index (tenant_id, knowledge_base_id);

-- Vectors of indexed generations that are not in the relation yet.
CREATE TABLE vector_pending (
    knowledge_base_id uuid NOT NULL,
    generation        integer NOT NULL,
    chunk_id          uuid NOT NULL,
    field             text NOT NULL
);
CREATE INDEX vector_pending_by_generation ON vector_pending (knowledge_base_id, generation);

-- Generations that have got vectors and may need an index now. Only ever inserted and deleted: uploads into one base don't wait for each other.
CREATE TABLE vector_change (
    knowledge_base_id uuid NOT NULL,
    generation        integer NOT NULL
);
INSERT INTO vector_change (knowledge_base_id, generation) SELECT id, embedding_generation FROM knowledge_base;

-- To count the chunks of a base, and for nothing else: who looks for a word in a base must go by chunk_keywords. The planner only knows how large
-- bases are in the mean, and where that is small it would read all chunks of a large one.
CREATE INDEX chunk_counts ON chunk ((knowledge_base_id::text)) INCLUDE (knowledge_base_id, keyword_count);
DROP INDEX chunk_by_knowledge_base;

CREATE FUNCTION note_new_vectors() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO vector_pending (knowledge_base_id, generation, chunk_id, field)
    SELECT knowledge_base_id, generation, chunk_id, field FROM added JOIN vector_index USING (knowledge_base_id, generation);
    INSERT INTO vector_change (knowledge_base_id, generation)
    SELECT DISTINCT knowledge_base_id, generation FROM added
    WHERE NOT EXISTS (SELECT FROM vector_index i WHERE i.knowledge_base_id = added.knowledge_base_id AND i.generation = added.generation);
    RETURN NULL;
END
$$;
CREATE TRIGGER note_new_vectors AFTER INSERT ON chunk_embedding REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION note_new_vectors();

-- Builds an index that is due with so much memory, beside the one that serves where there is one; the number of vectors in it. Null when it
-- isn't due, or when something else is built: one at a time in a database. All of it is one transaction: whoever is killed leaves nothing behind.
-- Serial, because the workers of a parallel build share their memory in /dev/shm, which is tiny in containers.
CREATE FUNCTION build_vector_index(base uuid, of_generation integer, memory_mb integer) RETURNS bigint
LANGUAGE plpgsql VOLATILE STRICT SECURITY DEFINER
SET search_path = public, pg_temp SET max_parallel_maintenance_workers = 0 SET enable_seqscan = off AS $$
DECLARE
    registered vector_index;
    name text;
    dims integer;
    n bigint;
    cells integer;
BEGIN
    IF NOT (pg_try_advisory_xact_lock(7307, 0) AND pg_try_advisory_xact_lock(7308, hashtext(base::text || of_generation))) THEN
        RETURN NULL;
    END IF;
    SELECT * INTO registered FROM vector_index
    WHERE knowledge_base_id = base AND generation = of_generation AND due AND not_before <= now() AND horizon <= pg_snapshot_xmin(pg_current_snapshot());
    SELECT vector_dims(embedding) INTO dims FROM chunk_embedding WHERE knowledge_base_id = base AND generation = of_generation LIMIT 1;
    IF registered IS NULL OR dims IS NULL THEN
        RETURN NULL;
    ELSIF dims > 4000 THEN -- more than an index can take: this base is searched exactly
        UPDATE vector_index SET due = false, error = 'too_many_dimensions' WHERE knowledge_base_id = base AND generation = of_generation;
        RETURN NULL;
    END IF;
    PERFORM set_config('maintenance_work_mem', memory_mb || 'MB', true);
    name := format('v_%s_%s_%s', replace(base::text, '-', ''), of_generation, registered.builds + 1);
    -- First the marks, then the rows: what is marked in between is in both, and moved without effect later.
    DELETE FROM vector_pending WHERE knowledge_base_id = base AND generation = of_generation;
    EXECUTE format('CREATE TABLE vector_indexes.%I (chunk_id uuid NOT NULL, field text NOT NULL, document_id uuid NOT NULL, embedding halfvec(%s) NOT NULL)',
                   name, dims);
    EXECUTE format('INSERT INTO vector_indexes.%I SELECT e.chunk_id, e.field, c.document_id, e.embedding FROM chunk_embedding e '
                   'JOIN chunk c ON c.tenant_id = e.tenant_id AND c.id = e.chunk_id WHERE e.knowledge_base_id = $1 AND e.generation = $2', name)
    USING base, of_generation;
    GET DIAGNOSTICS n = ROW_COUNT;
    EXECUTE format('ALTER TABLE vector_indexes.%I ADD PRIMARY KEY (chunk_id, field)', name);
    cells := greatest(1, round(sqrt(n / 2.0)));
    EXECUTE format('CREATE INDEX ON vector_indexes.%I USING ivfflat (embedding halfvec_cosine_ops) WITH (lists = %s)', name, cells);
    UPDATE vector_index SET relation = name, dimension = dims, lists = cells, copied = n, due = false, error = NULL, builds = builds + 1, built_at = clock_timestamp()
    WHERE knowledge_base_id = base AND generation = of_generation;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the knowledge base has gone' USING ERRCODE = 'no_data_found';
    END IF;
    RETURN n;
END
$$;

-- Moves up to so many pending vectors into an index; how many. Null when there is no index, or somebody else builds or extends it.
CREATE FUNCTION extend_vector_index(base uuid, of_generation integer, at_most integer) RETURNS bigint
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
        '    JOIN chunk_embedding e ON e.chunk_id = taken.chunk_id AND e.generation = $2 AND e.field = taken.field'
        '    JOIN chunk c ON c.tenant_id = e.tenant_id AND c.id = e.chunk_id'
        '    ON CONFLICT DO NOTHING'
        ') SELECT count(*) FROM taken', name)
    INTO n USING base, of_generation, at_most;
    UPDATE vector_index SET copied = copied + n WHERE knowledge_base_id = base AND generation = of_generation AND n > 0;
    RETURN n;
END
$$;

-- How many chunks of a base hold each of the terms that more than so many hold, of the commonest at most so many; terms stand as tsquery writes them.
CREATE FUNCTION count_common_terms(base uuid, holders bigint, at_most integer) RETURNS jsonb
LANGUAGE plpgsql VOLATILE STRICT SECURITY DEFINER SET search_path = public, pg_temp SET enable_seqscan = off AS $$
BEGIN
    RETURN (
        SELECT coalesce(jsonb_object_agg(term, ndoc), '{}')
        FROM (
            SELECT ('''' || replace(replace(word, '\', '\\'), '''', '''''') || '''')::tsquery::text AS term, ndoc
            FROM ts_stat(format('SELECT keywords FROM chunk WHERE knowledge_base_id::text = %L', base))
            WHERE ndoc > holders
            ORDER BY ndoc DESC, word
            LIMIT at_most
        ) AS common);
END
$$;

-- Drops the tables that no index names any more: of deleted bases, of indexes that aren't needed, of those that were built anew. How many.
CREATE FUNCTION drop_unused_vector_relations() RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    unused record;
    n integer := 0;
BEGIN
    FOR unused IN
        SELECT relname FROM pg_class WHERE relnamespace = 'vector_indexes'::regnamespace AND relkind = 'r'
        AND NOT EXISTS (SELECT FROM vector_index WHERE relation = relname::text)
    LOOP
        EXECUTE format('DROP TABLE vector_indexes.%I', unused.relname);
        n := n + 1;
    END LOOP;
    RETURN n;
END
$$;

-- The nearest vectors of an indexed base, `wanted` at least where it has so many, some of them approximately and then `indexed`; with `documents` of these
-- only. `wanted` rows by the index, and as many of the pending ones, which are all looked at. What the index can't do, because most of what it holds
-- was deleted or is of other documents, because too much is pending, or because it has just been dropped, an exact search does. Rows may come twice.
CREATE FUNCTION nearest_indexed_vectors(base uuid, of_generation integer, question vector, wanted integer, documents uuid[])
RETURNS TABLE (found_id uuid, distance double precision, indexed boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 100
SET search_path = public, pg_temp SET enable_seqscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    name text;
    dims integer;
    cells integer;
    n bigint := 0;
BEGIN
    SELECT relation, dimension, lists INTO name, dims, cells FROM vector_index
    WHERE knowledge_base_id = base AND generation = of_generation AND 1000 >= (
        SELECT count(*) FROM (SELECT FROM vector_pending WHERE knowledge_base_id = base AND generation = of_generation LIMIT 1001) AS pending);
    IF dims = vector_dims(question) THEN
        -- So many of the lists as questions that are far from everything need, or from all that a filter lets through; all of few lists.
        PERFORM set_config('ivfflat.probes', greatest(20, ceil(CASE WHEN documents IS NULL THEN 4 ELSE 8 END * sqrt(cells)))::text, true);
        BEGIN
            RETURN QUERY EXECUTE format(
                'SELECT * FROM ('
                '    SELECT e.chunk_id, e.embedding <=> $1, true FROM vector_indexes.%I d'
                '    JOIN chunk_embedding e ON e.chunk_id = d.chunk_id AND e.generation = $2 AND e.field = d.field'
                '    WHERE $3::uuid[] IS NULL OR d.document_id = ANY ($3)'
                '    ORDER BY d.embedding <=> $1::halfvec(%s) LIMIT $4'
                ') AS by_index'
                ' UNION ALL '
                'SELECT * FROM ('
                '    SELECT e.chunk_id, e.embedding <=> $1, true FROM vector_pending p'
                '    JOIN chunk_embedding e ON e.chunk_id = p.chunk_id AND e.generation = $2 AND e.field = p.field'
                '    WHERE p.knowledge_base_id = $5 AND p.generation = $2 AND ($3::uuid[] IS NULL OR EXISTS ('
                '        SELECT FROM chunk c WHERE c.id = p.chunk_id AND c.document_id = ANY ($3)))'
                '    ORDER BY 2 LIMIT $4'
                ') AS pending', name, dims)
            USING question, of_generation, documents, wanted, base;
            GET DIAGNOSTICS n = ROW_COUNT;
        EXCEPTION WHEN undefined_table THEN
            n := 0;
        END;
    END IF;
    IF n < wanted THEN
        RETURN QUERY
        SELECT e.chunk_id, (e.embedding <=> question) + 0 AS near, false
        FROM chunk_embedding e
        WHERE e.knowledge_base_id = base AND e.generation = of_generation
        AND (documents IS NULL OR EXISTS (SELECT FROM chunk c WHERE c.id = e.chunk_id AND c.document_id = ANY (documents)))
        ORDER BY near, e.chunk_id
        LIMIT wanted;
    END IF;
END
$$;

REVOKE ALL ON FUNCTION build_vector_index(uuid, integer, integer), extend_vector_index(uuid, integer, integer),
    count_common_terms(uuid, bigint, integer), drop_unused_vector_relations(),
    nearest_indexed_vectors(uuid, integer, vector, integer, uuid[]) FROM PUBLIC;
