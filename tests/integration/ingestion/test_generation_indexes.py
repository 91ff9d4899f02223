"""A large knowledge base changes its embedding model: the new one serves when it has its index, or when there is none to wait for."""

from collections.abc import Sequence
from uuid import UUID

import pytest

from tests.integration.ingestion.conftest import SECONDS, Home
from tests.integration.ingestion.library import Library, chapters, eventually
from tests.integration.ingestion.test_generations import (
    assert_both_complete,
    change,
    serving,
    until_serving,
)

LARGE = {"CHATMIND_VECTOR_INDEXES__MIN_VECTORS": "50", "CHATMIND_VECTOR_INDEXES__EVERY": "0.2"}


async def until_indexed(library: Library, wanted: Sequence[int]) -> None:
    """Returns when these generations have an index, and no other one is to have one."""

    async def built() -> bool:
        rows = await library.pool.fetch(
            "SELECT generation, relation FROM vector_index WHERE knowledge_base_id = $1 ORDER BY generation", library.id
        )
        return [row["generation"] for row in rows if row["relation"]] == list(wanted) and len(rows) == len(wanted)

    await eventually(built, f"the generations {wanted} are indexed", SECONDS)


async def large_library(home: Home) -> tuple[Library, UUID]:
    """A base of 60 chunks that has its index, and its document."""
    library = await Library.create(home.pool, embed="body")
    document_id = await library.upload(chapters("large", 60))
    await library.until(document_id, "ready", seconds=SECONDS)
    await until_indexed(library, [1])
    return library, document_id


async def test_a_large_base_gets_one_index_when_its_vectors_are_complete_and_then_serves(home: Home) -> None:
    worker = home.start_ingestion(**LARGE)
    library, _ = await large_library(home)
    async with home.pool.acquire() as writer:
        transaction = writer.transaction()
        await transaction.start()
        await writer.fetchval("SELECT pg_current_xact_id()")  # nothing is indexed until this has ended
        await change(library, "wide")

        async def registered() -> bool:
            return bool(await library.pool.fetchval("SELECT count(*) FROM vector_index WHERE generation = 2"))

        await eventually(registered, "the new generation waits for its index", SECONDS)
        assert await library.pool.fetchval("SELECT count(*) FROM chunk_embedding WHERE generation = 2") == 60
        await library.until(await library.upload(chapters("meanwhile", 3)), "ready", seconds=SECONDS)
        assert await serving(library) == (1, "tiny")
        await transaction.rollback()
    await until_serving(library, (2, "wide"))
    await assert_both_complete(library)
    await until_indexed(library, [1, 2])
    assert await library.pool.fetchval("SELECT builds FROM vector_index WHERE generation = 2") == 1
    assert '"index":"ready"' in worker.log_file.read_text()


@pytest.mark.parametrize(
    ("environment", "state"),
    [({"CHATMIND_GENERATIONS__INDEX_SECONDS": "0.1"}, "building"), ({}, "failed")],
)
async def test_an_index_that_is_late_or_fails_keeps_nobody_from_the_new_model(
    home: Home, environment: dict[str, str], state: str
) -> None:
    worker = home.start_ingestion(**LARGE, **environment)
    library, document_id = await large_library(home)
    async with home.pool.acquire() as writer, writer.transaction():
        await writer.fetchval("SELECT pg_current_xact_id()")  # nothing is indexed until this has ended
        await change(library, "wide")
        if state == "failed":

            async def put_off() -> bool:
                return bool(
                    await library.pool.fetchval(
                        "UPDATE vector_index SET not_before = now() + interval '10 minutes', error = 'DiskFullError'"
                        " WHERE generation = 2 RETURNING generation"
                    )
                )

            await eventually(put_off, "the index is put off", SECONDS)
        await until_serving(library, (2, "wide"))
    await assert_both_complete(library)
    await home.until_logged(worker, "generation.not_indexed", library.id)
    assert f'"state":"{state}"' in worker.log_file.read_text()
    assert len(await library.vectors(document_id, 2)) == 60
