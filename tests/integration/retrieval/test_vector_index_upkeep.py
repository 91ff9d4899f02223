"""The upkeep of indexes: when they are built, built anew and given up, and that nobody waits for it."""

import asyncio
from io import StringIO

import asyncpg
import numpy as np
import pytest
from rich.console import Console

from deploy.local.vector_indexes import print_vector_indexes
from services.ingestion.vector_indexes import VectorIndexes
from tests.integration.retrieval.large_bases import (
    LARGE,
    SETTINGS,
    assert_found,
    held_build,
    large_base,
    matching,
    nearest,
    relations,
    sweep_until_built,
)
from tests.integration.retrieval.library import Library
from tests.support.embedding_server import vector_of


async def test_an_index_of_a_base_that_has_shrunk_is_given_up(library: Library, indexes: VectorIndexes) -> None:
    base = await large_base(library, indexes)
    await library.pool.execute(
        "DELETE FROM chunk WHERE id IN (SELECT id FROM chunk WHERE knowledge_base_id = $1 LIMIT 100)", base.id
    )

    await indexes.sweep()

    assert await relations(library.pool) == []
    await assert_found(library, base, "exact")


async def test_an_index_of_which_most_has_gone_is_built_anew(library: Library, indexes: VectorIndexes) -> None:
    base = await large_base(library, indexes)
    (before,) = await relations(library.pool)
    await library.pool.execute(
        "DELETE FROM chunk WHERE id IN (SELECT id FROM chunk WHERE knowledge_base_id = $1 LIMIT 70)", base.id
    )
    await assert_found(library, base, "index")

    await sweep_until_built(indexes)

    (after,) = await relations(library.pool)
    assert after != before
    assert await library.pool.fetchval(f"SELECT count(*) FROM vector_indexes.{after}") == 100
    await assert_found(library, base, "index")


async def test_an_index_goes_with_its_base(library: Library, indexes: VectorIndexes) -> None:
    base = await large_base(library, indexes)
    await library.pool.execute("DELETE FROM knowledge_base WHERE id = $1", base.id)
    await library.pool.execute("INSERT INTO vector_pending VALUES ($1, 1, $1, 'body')", base.id)

    await indexes.sweep()

    assert await relations(library.pool) == []
    assert await library.pool.fetchval("SELECT count(*) FROM vector_pending") == 0


async def test_an_index_that_is_outgrown_is_built_anew(library: Library, indexes: VectorIndexes) -> None:
    base = await large_base(library, indexes)
    (before,) = await relations(library.pool)
    near = list(vector_of("q", 8))
    ids = await library.add_chunks(base, ["added", *(f"more {n}" for n in range(600))], {"added": near})
    await assert_found(library, base, "exact")  # too much is pending

    await sweep_until_built(indexes)

    (after,) = await relations(library.pool)
    assert after != before
    await assert_found(library, base, "index")
    assert (await nearest(library, base))[1][0].chunk_id == ids["added"]


async def test_a_writer_that_has_not_seen_the_registration_is_waited_for(
    library: Library, indexes: VectorIndexes
) -> None:
    base = await library.add_base()
    ids = await library.add_chunks(base, [*LARGE, "late"])
    await library.pool.execute("DELETE FROM chunk_embedding WHERE chunk_id = $1", ids["late"])
    async with library.pool.acquire() as writer, writer.transaction():
        await writer.execute(
            "INSERT INTO chunk_embedding (tenant_id, knowledge_base_id, chunk_id, field, embedding) VALUES ($1, $2, $3, 'body', $4)",
            base.tenant_id,
            base.id,
            ids["late"],
            np.array(vector_of("q", 8), np.float32),
        )
        for _ in range(2):
            await indexes.sweep()
        assert await library.pool.fetchval("SELECT count(*) FROM vector_index WHERE due") == 1
        assert await relations(library.pool) == []

    await sweep_until_built(indexes)

    await assert_found(library, base, "index")
    assert (await nearest(library, base))[1][0].chunk_id == ids["late"]


async def test_a_build_stops_nobody(library: Library, indexes: VectorIndexes) -> None:
    base, other = await large_base(library, indexes), await library.add_base()
    near = list(vector_of("q", 8))
    async with held_build(library, indexes, base):
        async with asyncio.timeout(5):
            ids = await library.add_chunks(base, ["meanwhile"], {"meanwhile": near})
            await library.add_chunks(other, ["elsewhere"])
            await assert_found(library, base, "index")
            await assert_found(library, other, "exact")
            await VectorIndexes(library.pool, SETTINGS)._build((await indexes._fetch("indexed_generations"))[0])
        assert len(await relations(library.pool)) == 1

    await assert_found(library, base, "index")
    assert (await nearest(library, base))[1][0].chunk_id == ids["meanwhile"]
    await sweep_until_built(indexes)
    await assert_found(library, base, "index")


async def test_a_build_that_is_killed_leaves_nothing_and_is_begun_again(
    library: Library, indexes: VectorIndexes
) -> None:
    base = await large_base(library, indexes)
    before = await relations(library.pool)
    async with held_build(library, indexes, base) as (build, pid):
        await library.pool.execute("SELECT pg_terminate_backend($1)", pid)
        with pytest.raises(asyncpg.PostgresError):
            await build
        assert await relations(library.pool) == before
        await assert_found(library, base, "index")

    await sweep_until_built(indexes)

    assert len(await relations(library.pool)) == 1
    assert await relations(library.pool) != before
    await assert_found(library, base, "index")


async def test_vectors_that_no_index_can_hold_are_searched_exactly(library: Library, indexes: VectorIndexes) -> None:
    base = await library.add_base()
    await library.add_chunks(base, LARGE)
    await library.pool.execute(
        "UPDATE chunk_embedding SET embedding = '[1,2,3]' WHERE chunk_id = (SELECT min(id::text)::uuid FROM chunk)"
    )
    for _ in range(3):
        await indexes.sweep()

    assert await library.pool.fetchval("SELECT error FROM vector_index WHERE knowledge_base_id = $1", base.id)
    assert await relations(library.pool) == []


async def test_the_status_lists_large_bases(library: Library, indexes: VectorIndexes, database_url: str) -> None:
    base = await large_base(library, indexes)
    console = Console(width=200, record=True, file=StringIO())

    await asyncio.to_thread(print_vector_indexes, console, database_url)

    (line,) = [line for line in console.export_text().splitlines() if str(base.id) in line]
    assert "240" in line
    assert "ready" in line


async def test_the_common_terms_of_a_large_base_are_counted_for_all_questions(
    library: Library, indexes: VectorIndexes
) -> None:
    base = await library.add_base()
    await library.add_chunks(base, LARGE)
    counted_each_time = await matching(library, base, "passage 7")
    await sweep_until_built(indexes)

    known = await library.pool.fetchval("SELECT common_terms->>$1 FROM vector_index", "'passag'")
    assert int(known) == len(LARGE)
    assert await matching(library, base, "passage 7") == counted_each_time
    assert len(counted_each_time) == 100  # as many as were asked for

    # The count is really used: where it says that few chunks hold the word, the word says more.
    await library.pool.execute("UPDATE vector_index SET common_terms = $1", {"'passag'": 3})
    assert (await matching(library, base, "passage 7"))[0].bm25 > counted_each_time[0].bm25


async def test_common_terms_are_counted_again_when_a_base_has_changed(library: Library, indexes: VectorIndexes) -> None:
    base = await large_base(library, indexes)
    assert "'more'" not in await library.pool.fetchval("SELECT common_terms::text FROM vector_index")

    await library.add_chunks(base, [f"more {n}" for n in range(20)])
    await indexes.sweep()

    assert await library.pool.fetchval("SELECT common_terms->>$1 FROM vector_index", "'more'") == "20"


async def test_an_index_that_has_grown_to_twice_its_size_is_built_anew(
    library: Library, indexes: VectorIndexes
) -> None:
    base = await large_base(library, indexes)
    (before,) = await relations(library.pool)
    lists = await library.pool.fetchval("SELECT lists FROM vector_index")
    for start in range(0, 240, 60):  # a little at a time: it is never outgrown
        await library.add_chunks(base, [f"more {n}" for n in range(start, start + 60)])
        await indexes.sweep()
    await sweep_until_built(indexes)

    (after,) = await relations(library.pool)
    assert after != before
    assert await library.pool.fetchval("SELECT lists FROM vector_index") > lists
    await assert_found(library, base, "index")
