"""Searches of large knowledge bases: whatever becomes of the index, they find min(k, n) and what is nearest."""

import pytest

from services.ingestion.vector_indexes import VectorIndexes
from shared.contracts.questions import SearchFilter
from tests.integration.retrieval.large_bases import (
    LARGE,
    assert_found,
    exactly,
    large_base,
    nearest,
    relations,
    sweep_until_built,
)
from tests.integration.retrieval.library import Base, Library
from tests.support.embedding_server import vector_of


async def test_a_large_base_gets_an_index_and_a_small_one_none(library: Library, indexes: VectorIndexes) -> None:
    small = await library.add_base()
    await library.add_chunks(small, LARGE[:50])
    large = await large_base(library, indexes)

    for question in ("q", "another question", "passage 7"):
        await assert_found(library, large, "index", question)
        await assert_found(library, small, "exact", question)
    assert len(await relations(library.pool)) == 1


async def test_a_base_without_its_index_yet_is_searched_exactly(library: Library, indexes: VectorIndexes) -> None:
    base = await library.add_base()
    await library.add_chunks(base, LARGE)

    await assert_found(library, base, "exact")


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("only", [None, SearchFilter(media_types=["text/markdown"])])
async def test_a_title_that_all_chunks_share_leaves_room_for_their_bodies(
    library: Library, indexes: VectorIndexes, indexed: bool, only: SearchFilter | None
) -> None:
    """All titles are as near as can be: whoever took the nearest of all vectors would see no body."""
    base = await library.add_base()
    await library.add_chunks(base, LARGE, title="q")
    if indexed:
        await sweep_until_built(indexes)

    scan, found = await nearest(library, base, limit=10, only=only)

    assert scan == ("index" if indexed else "exact")
    assert [match.chunk_id for match in found] == [chunk_id for chunk_id, _ in await exactly(library, base)]


@pytest.mark.parametrize("kept", [0, 1, 7, 30])
async def test_a_search_is_full_right_after_mass_deletion(library: Library, indexes: VectorIndexes, kept: int) -> None:
    base = await large_base(library, indexes)
    farthest = [match.chunk_id for match in (await nearest(library, base, limit=120))[1]][120 - kept :]
    await library.pool.execute("DELETE FROM chunk WHERE id <> ALL ($1::uuid[])", farthest)

    _, found = await nearest(library, base, limit=10)

    assert len(found) == min(10, kept)
    assert {match.chunk_id for match in found} <= set(farthest)
    expected = await exactly(library, base)
    assert [match.chunk_id for match in found] == [chunk_id for chunk_id, _ in expected]
    assert [match.cosine for match in found] == pytest.approx([cosine for _, cosine in expected], abs=1e-6)


async def test_chunks_are_found_before_and_after_the_index_holds_them(library: Library, indexes: VectorIndexes) -> None:
    base = await large_base(library, indexes)
    near = list(vector_of("q", 8))
    ids = await library.add_chunks(base, ["added"], {"added": near})
    await library.add_chunks(base, [f"more {n}" for n in range(30)])

    await assert_found(library, base, "index")
    assert (await nearest(library, base))[1][0].chunk_id == ids["added"]
    assert await library.pool.fetchval("SELECT count(*) FROM vector_pending") == 62

    await indexes.sweep()

    await assert_found(library, base, "index")
    assert (await nearest(library, base))[1][0].chunk_id == ids["added"]
    assert await library.pool.fetchval("SELECT count(*) FROM vector_pending") == 0
    (relation,) = await relations(library.pool)
    assert await library.pool.fetchval(f"SELECT count(*) FROM vector_indexes.{relation}") == 302


async def test_a_table_that_has_gone_under_a_search_is_done_without(library: Library, indexes: VectorIndexes) -> None:
    base = await large_base(library, indexes)
    (relation,) = await relations(library.pool)
    await library.pool.execute(f"DROP TABLE vector_indexes.{relation}")

    await assert_found(library, base, "exact")


async def test_each_embedding_of_a_base_has_its_own_index(library: Library, indexes: VectorIndexes) -> None:
    base = await large_base(library, indexes)
    await library.pool.execute(
        "INSERT INTO chunk_embedding (tenant_id, knowledge_base_id, chunk_id, field, embedding, generation)"
        " SELECT tenant_id, knowledge_base_id, chunk_id, field, array_fill(1, ARRAY[12])::vector, 2 FROM chunk_embedding"
    )
    await sweep_until_built(indexes)

    assert len(await relations(library.pool)) == 2
    await assert_first_generation(library, base)
    await library.pool.execute("DELETE FROM chunk_embedding WHERE generation = 2")
    await indexes.sweep()
    assert len(await relations(library.pool)) == 1
    await assert_first_generation(library, base)


async def assert_first_generation(library: Library, base: Base) -> None:
    scan, found = await nearest(library, base, generation=1)
    assert (scan, len(found)) == ("index", 10)


async def test_an_index_serves_a_filter_that_lets_much_through(library: Library, indexes: VectorIndexes) -> None:
    base = await library.add_base()
    wanted = await library.add_chunks(base, LARGE)
    await library.add_chunks(base, [f"other {n}" for n in range(120)])
    few = await library.add_chunks(base, ["few"])
    rows = await library.pool.fetch(
        "SELECT id, document_id FROM chunk WHERE id = ANY ($1::uuid[])", [*wanted.values(), *few.values()]
    )
    document_of = {row["id"]: row["document_id"] for row in rows}
    await sweep_until_built(indexes)

    scan, found = await nearest(library, base, only=SearchFilter(document_ids=(document_of[wanted["passage 0"]],)))
    everything = await exactly(library, base, limit=300)
    assert scan == "index"
    assert [match.chunk_id for match in found] == [
        chunk_id for chunk_id, _ in everything if chunk_id in set(wanted.values())
    ][:10]

    scan, found = await nearest(library, base, only=SearchFilter(document_ids=(document_of[few["few"]],)))
    assert (scan, [match.chunk_id for match in found]) == ("exact", [few["few"]])
