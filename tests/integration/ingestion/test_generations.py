"""Another embedding model for a knowledge base with documents: the former one serves until the new one is complete, whatever happens."""

import asyncio
from uuid import UUID

import orjson
import pytest

from services.gateway.store.embeddings import Base, change_model, discard_previous, roll_back
from tests.integration.ingestion.conftest import BATCH, SECONDS, Home
from tests.integration.ingestion.library import Library, chapters, eventually
from tests.support.embedding_server import Answer, EmbeddingServer, vector_of

Serving = tuple[int, str]


async def change(library: Library, model: str) -> None:
    async with library.pool.acquire() as connection, connection.transaction():
        await change_model(connection, Base(library.tenant_id, library.id, None), model)


async def go_back(library: Library) -> None:
    async with library.pool.acquire() as connection, connection.transaction():
        await roll_back(connection, Base(library.tenant_id, library.id, None))


async def serving(library: Library) -> Serving:
    row = await library.pool.fetchrow(
        "SELECT embedding_generation, embedding_model FROM knowledge_base WHERE id = $1", library.id
    )
    assert row is not None
    return row["embedding_generation"], row["embedding_model"]


async def states(library: Library) -> dict[int, tuple[str, str]]:
    """Model and state of the generations that don't serve."""
    rows = await library.pool.fetch(
        "SELECT generation, model, state FROM embedding_generation WHERE knowledge_base_id = $1", library.id
    )
    return {row["generation"]: (row["model"], row["state"]) for row in rows}


async def until_serving(library: Library, wanted: Serving) -> None:
    async def serves() -> bool:
        return await serving(library) == wanted

    await eventually(serves, f"{wanted} serves", SECONDS)


async def assert_complete(library: Library, generation: int, prefix: str, dimension: int) -> None:
    """Every chunk of every document has the right vectors, and nothing else has any."""
    rows = await library.pool.fetch(
        """SELECT c.title, c.content, e.field, e.embedding FROM chunk c LEFT JOIN chunk_embedding e
               ON e.chunk_id = c.id AND e.generation = $2 WHERE c.knowledge_base_id = $1""",
        library.id,
        generation,
    )
    for row in rows:
        text = row["title"] if row["field"] == "title" else row["content"]
        assert row["field"] is not None, f"{row['title']} has no vector"
        assert row["embedding"].to_list() == pytest.approx(vector_of(prefix + text, dimension), abs=1e-6)
    assert len(rows) == await library.pool.fetchval(
        "SELECT count(*) FROM chunk_embedding WHERE knowledge_base_id = $1 AND generation = $2", library.id, generation
    )


async def assert_both_complete(library: Library) -> None:
    await assert_complete(library, 1, "passage: ", 8)
    await assert_complete(library, 2, "", 12)


async def hold_the_change(home: Home, library: Library, requests: int) -> None:
    """Begins to change to the wide model, whose server lets so many requests through and then waits."""
    home.wide.hold_after(requests)
    await change(library, "wide")
    async with asyncio.timeout(SECONDS):
        await home.wide.held.wait()


async def test_the_former_model_serves_until_the_new_one_is_complete(shared_home: Home, wide: EmbeddingServer) -> None:
    library = await Library.create(shared_home.pool)
    document_id = await library.upload(chapters("switch", 30))
    await library.until(document_id, "ready")
    await hold_the_change(shared_home, library, 3)
    assert await serving(library) == (1, "tiny")
    assert await states(library) == {2: ("wide", "building")}
    wide.release()
    await until_serving(library, (2, "wide"))
    assert await states(library) == {1: ("tiny", "kept")}
    await assert_both_complete(library)


async def test_the_change_is_told_in_the_events_of_the_base(shared_home: Home) -> None:
    library = await Library.create(shared_home.pool)
    await library.until(await library.upload(chapters("told", 10)), "ready")
    await change(library, "wide")
    await until_serving(library, (2, "wide"))
    rows = await shared_home.pool.fetch(
        "SELECT payload FROM knowledge_base_event WHERE knowledge_base_id = $1 AND type = 'knowledge_base.embedding' ORDER BY seq",
        library.id,
    )
    told = [orjson.loads(row["payload"])["embedding"] for row in rows]
    done = [one["next"]["done"] for one in told if one["next"]]
    assert [one["state"] for one in told] == ["building"] * len(done) + ["ready"]
    assert done == sorted(done)
    assert (done[0], done[-1], told[-2]["next"]["total"]) == (0, 10, 10)
    assert (told[0]["model"], told[-1]["model"], told[-1]["previous"]["model"]) == ("tiny", "wide", "tiny")


async def test_documents_that_come_go_and_change_meanwhile_are_right_in_both(
    shared_home: Home, wide: EmbeddingServer
) -> None:
    library = await Library.create(shared_home.pool)
    old = [await library.upload(chapters(f"old{number}", 20)) for number in range(3)]
    for document_id in old:
        await library.until(document_id, "ready")
    await hold_the_change(shared_home, library, 6)
    await library.delete(old[0])
    await library.replace(old[1], chapters("replaced", 7))
    added = await library.upload(chapters("added", 5))
    wide.release()
    for document_id in (old[1], old[2], added):
        await library.until(document_id, "ready", seconds=SECONDS)
    await until_serving(library, (2, "wide"))
    later = await library.upload(chapters("later", 4))  # the former one is kept complete
    await library.until(later, "ready")
    await assert_both_complete(library)


async def test_a_killed_worker_resumes_at_the_batch(home: Home) -> None:
    library = await Library.create(home.pool, embed="body")
    worker = home.start_ingestion()
    for number in range(3):
        await library.until(await library.upload(chapters(f"part{number}", 100)), "ready", seconds=SECONDS)
    for batches in (20, 25):
        await hold_the_change(home, library, batches)
        worker.kill()
        home.wide.release()
        assert await serving(library) == (1, "tiny")
        worker = home.start_ingestion()
    await until_serving(library, (2, "wide"))
    assert len(home.wide.texts) <= 300 + 2 * 2 * BATCH  # at a kill, one batch waits and another's answer may be lost
    await assert_both_complete(library)


async def test_a_worker_that_dies_at_the_cut_over_leaves_the_former_or_the_new_one(home: Home) -> None:
    library = await Library.create(home.pool)
    worker = home.start_ingestion(CHATMIND_FAILPOINT="generation_switching=kill")
    await library.until(await library.upload(chapters("cut", 10)), "ready", seconds=SECONDS)
    await change(library, "wide")

    async def died() -> bool:
        return worker.process.poll() is not None

    await eventually(died, "the worker died", SECONDS)
    assert await serving(library) == (1, "tiny")
    home.start_ingestion()
    await until_serving(library, (2, "wide"))
    await assert_both_complete(library)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("wrong_dimension", "embedding_invalid"),
        ("unauthorized", "embedding_unauthorized"),
        ("nan", "embedding_invalid"),
    ],
)
async def test_a_model_that_is_no_use_ends_the_change_and_can_be_tried_again(
    shared_home: Home, wide: EmbeddingServer, answer: Answer, code: str
) -> None:
    library = await Library.create(shared_home.pool)
    await library.until(await library.upload(chapters(f"use {answer}", 6)), "ready")
    wide.answer = answer
    await change(library, "wide")

    async def failed() -> bool:
        return await states(library) == {2: ("wide", "failed")}

    await eventually(failed, "the change has failed", SECONDS)
    error = await shared_home.pool.fetchval(
        "SELECT error FROM embedding_generation WHERE knowledge_base_id = $1", library.id
    )
    assert error["code"] == code
    assert await serving(library) == (1, "tiny")
    wide.answer = "right"
    await library.until(await library.upload(chapters(f"more {answer}", 3)), "ready")  # the former one goes on
    await change(library, "wide")
    await until_serving(library, (2, "wide"))
    await assert_both_complete(library)


async def test_a_model_that_has_left_the_models_file_ends_the_change(shared_home: Home) -> None:
    library = await Library.create(shared_home.pool)
    await library.until(await library.upload(chapters("unknown", 2)), "ready")
    await change(library, "gone")

    async def failed() -> bool:
        return await states(library) == {2: ("gone", "failed")}

    await eventually(failed, "the change has failed", SECONDS)
    assert await serving(library) == (1, "tiny")


async def test_a_second_change_replaces_the_first_whose_vectors_go(shared_home: Home, wide: EmbeddingServer) -> None:
    library = await Library.create(shared_home.pool)
    await library.until(await library.upload(chapters("twice", 20)), "ready")
    await hold_the_change(shared_home, library, 4)
    await change(library, "tiny")  # what serves: the change is called off
    assert await states(library) == {2: ("wide", "discarding")}
    await change(library, "wide")
    wide.release()
    await until_serving(library, (3, "wide"))
    await assert_complete(library, 3, "", 12)
    await until_gone(shared_home, library, 2)
    assert await states(library) == {1: ("tiny", "kept")}


async def test_one_call_goes_back_and_forth_at_once(shared_home: Home) -> None:
    library = await Library.create(shared_home.pool)
    await library.until(await library.upload(chapters("back", 10)), "ready")
    await change(library, "wide")
    await until_serving(library, (2, "wide"))
    await library.until(await library.upload(chapters("since", 5)), "ready")
    await go_back(library)
    assert await serving(library) == (1, "tiny")
    await assert_both_complete(library)
    await change(library, "wide")
    assert await serving(library) == (2, "wide")
    async with library.pool.acquire() as connection, connection.transaction():
        await discard_previous(connection, Base(library.tenant_id, library.id, None))
    await until_gone(shared_home, library, 1)
    await assert_complete(library, 2, "", 12)


async def test_going_back_makes_first_what_the_former_model_did_not_answer(shared_home: Home) -> None:
    library = await Library.create(shared_home.pool, embed="body")
    await library.until(await library.upload(chapters("first", 10)), "ready")
    await change(library, "wide")
    await until_serving(library, (2, "wide"))
    document_id = await library.upload(chapters("incomplete", 6))
    await library.until(document_id, "ready")
    # As the previous release leaves it, which knows of one generation only.
    await library.pool.execute(
        "DELETE FROM chunk_embedding USING chunk WHERE chunk.id = chunk_id AND document_id = $1 AND generation = 1",
        document_id,
    )
    await go_back(library)
    assert await serving(library) == (2, "wide")
    await until_serving(library, (1, "tiny"))
    await assert_both_complete(library)


async def test_documents_are_ready_without_the_model_that_does_not_serve(
    shared_home: Home, wide: EmbeddingServer
) -> None:
    library = await Library.create(shared_home.pool)
    await library.until(await library.upload(chapters("alone", 10)), "ready")
    await change(library, "wide")
    await until_serving(library, (2, "wide"))
    await go_back(library)
    wide.answer = "unauthorized"
    document_id = await library.upload(chapters("without", 3))
    await library.until(document_id, "ready")
    assert (len(await library.vectors(document_id, 1)), len(await library.vectors(document_id, 2))) == (6, 0)


async def until_gone(home: Home, library: Library, generation: int) -> None:
    """Lets the time pass in which searches may read a generation that was given up; returns when nothing is left of it."""
    await home.pool.execute(
        "UPDATE embedding_generation SET not_before = now() WHERE knowledge_base_id = $1 AND state = 'discarding'",
        library.id,
    )

    async def gone() -> bool:
        rows: int = await library.pool.fetchval(
            """SELECT (SELECT count(*) FROM embedding_generation WHERE knowledge_base_id = $1 AND generation = $2)
                    + (SELECT count(*) FROM chunk_embedding WHERE knowledge_base_id = $1 AND generation = $2)""",
            library.id,
            generation,
        )
        return rows == 0

    await eventually(gone, f"generation {generation} is gone", SECONDS)


async def test_what_was_added_without_a_generation_is_the_serving_one_s(shared_home: Home) -> None:
    """As the previous release adds it."""
    library = await Library.create(shared_home.pool, embed="body")
    document_id = await library.upload(chapters("previous", 2))
    await library.until(document_id, "ready")
    await library.pool.execute("UPDATE knowledge_base SET embedding_generation = 7 WHERE id = $1", library.id)
    chunk_id: UUID = (await library.chunks(document_id))[0]["id"]
    await library.pool.execute(
        """INSERT INTO chunk_embedding (tenant_id, knowledge_base_id, chunk_id, field, embedding)
           VALUES ($1, $2, $3, 'title', '[1,2,3]')""",
        library.tenant_id,
        library.id,
        chunk_id,
    )
    assert await library.vectors(document_id, 7) == {(0, "title"): [1.0, 2.0, 3.0]}
