"""A generation that is newer than the statistics: neither its searches nor its index read all of it for each vector."""

from uuid import UUID

import numpy as np

from services.ingestion.vector_indexes import VectorIndexes
from shared.db.pool import AnyConnection
from tests.integration.retrieval.large_bases import large_base, relations, sweep_until_built
from tests.integration.retrieval.library import Base, Library
from tests.support.embedding_server import vector_of

GENERATION = 2
CHUNKS = 1_000
MORE = 100  # that come when the index is there
WANTED = 50
READ_FOR_EACH = 4  # the vector's counterpart of the other generation, and some margin


async def add_generation(connection: AnyConnection, base: Base, limit: int = 2 * CHUNKS) -> None:
    """Some of the base's titles and bodies that have no vector of the new generation get one: the one they have."""
    await connection.execute(
        "INSERT INTO chunk_embedding (tenant_id, knowledge_base_id, chunk_id, field, embedding, generation)"
        " SELECT tenant_id, knowledge_base_id, chunk_id, field, embedding, $2 FROM chunk_embedding AS one WHERE knowledge_base_id = $1"
        " AND generation = 1"
        " AND NOT EXISTS (SELECT FROM chunk_embedding WHERE chunk_id = one.chunk_id AND field = one.field AND generation = $2)"
        " LIMIT $3",
        base.id,
        GENERATION,
        limit,
    )


async def base_with_a_new_generation(library: Library) -> Base:
    """Statistics know its first generation only."""
    base = await library.add_base()
    await library.add_chunks(base, [f"passage {n}" for n in range(CHUNKS)])
    await library.pool.execute("ALTER TABLE chunk_embedding SET (autovacuum_enabled = false)")
    await library.pool.execute("ANALYZE chunk_embedding")
    await library.pool.execute("DELETE FROM vector_change")  # the first generation gets no index
    return base


async def fetched(connection: AnyConnection) -> int:
    """Vectors that this connection has fetched by indexes since it told the statistics last, which it doesn't in a transaction."""
    return int(
        await connection.fetchval(
            "SELECT coalesce(sum(idx_tup_fetch), 0) FROM pg_stat_xact_user_tables WHERE relid = 'chunk_embedding'::regclass"
        )
    )


async def found(connection: AnyConnection, base_id: UUID) -> int:
    vector = np.array(vector_of("q", 8), np.float32)
    rows = await connection.fetch(
        "SELECT FROM nearest_indexed_vectors($1, $2, $3, $4, NULL) WHERE indexed",
        base_id,
        GENERATION,
        vector,
        WANTED,
    )
    return len(rows)


async def test_a_search_reads_the_vectors_that_it_looks_at(library: Library, indexes: VectorIndexes) -> None:
    base = await base_with_a_new_generation(library)
    async with library.pool.acquire() as connection:
        await add_generation(connection, base)
    await sweep_until_built(indexes)

    async with library.pool.acquire() as connection, connection.transaction():
        before = await fetched(connection)
        assert await found(connection, base.id) == 2 * WANTED  # titles and bodies
        assert await fetched(connection) - before <= READ_FOR_EACH * 2 * WANTED


async def test_so_it_does_among_those_that_wait_for_the_index(library: Library, indexes: VectorIndexes) -> None:
    base = await base_with_a_new_generation(library)
    async with library.pool.acquire() as connection:
        await add_generation(connection, base, 2 * CHUNKS - MORE)
        await sweep_until_built(indexes)
        await add_generation(connection, base)

    async with library.pool.acquire() as connection, connection.transaction():
        before = await fetched(connection)
        assert await found(connection, base.id) > 2 * WANTED  # some of those that wait as well
        assert await fetched(connection) - before <= READ_FOR_EACH * (2 * WANTED + MORE)


async def test_a_search_without_titles_does_not_look_for_them(library: Library, indexes: VectorIndexes) -> None:
    base = await base_with_a_new_generation(library)
    async with library.pool.acquire() as connection:
        await add_generation(connection, base)
        await connection.execute("DELETE FROM chunk_embedding WHERE field = 'title' AND generation = $1", GENERATION)
    await sweep_until_built(indexes)

    async with library.pool.acquire() as connection, connection.transaction():
        before = await fetched(connection)
        assert await found(connection, base.id) == WANTED
        assert await fetched(connection) - before <= READ_FOR_EACH * WANTED


async def test_the_index_is_extended_chunk_by_chunk(library: Library, indexes: VectorIndexes) -> None:
    base = await base_with_a_new_generation(library)
    async with library.pool.acquire() as connection:
        await add_generation(connection, base, 2 * CHUNKS - MORE)
        await sweep_until_built(indexes)
        await add_generation(connection, base)

    async with library.pool.acquire() as connection, connection.transaction():
        before = await fetched(connection)
        moved = await connection.fetchval("SELECT extend_vector_index($1, $2, $3)", base.id, GENERATION, MORE)
        assert moved == MORE
        assert await fetched(connection) - before <= READ_FOR_EACH * MORE


async def test_vectors_that_are_not_complete_get_no_index(library: Library, indexes: VectorIndexes) -> None:
    """It would be built again and again while they grow."""
    base = await large_base(library, indexes)
    await library.pool.execute(
        "INSERT INTO embedding_generation (tenant_id, knowledge_base_id, generation, model, state) VALUES ($1, $2, $3, 'm', 'building')",
        base.tenant_id,
        base.id,
        GENERATION,
    )
    async with library.pool.acquire() as connection:
        await add_generation(connection, base)
    await sweep_until_built(indexes)
    assert len(await relations(library.pool)) == 1

    await library.pool.execute("DELETE FROM embedding_generation")  # it serves
    await sweep_until_built(indexes)

    assert len(await relations(library.pool)) == 2
