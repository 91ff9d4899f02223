"""Which documents the sweeper takes away from their worker, and which it leaves alone."""

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID

import asyncpg
import pytest

from services.ingestion.store import DocumentStore
from shared.db.pool import Pool
from shared.hints import HintMessage
from shared.ids import new_id
from shared.leases import PRESENCE_CLASS, LeaseSettings
from tests.integration.ingestion.library import Library

LEASES = LeaseSettings(lease=30)


class NoHints:
    """Nobody listens."""

    def send(self, hint: HintMessage) -> None:
        pass


def store_of(pool: Pool, owner: UUID | None = None) -> DocumentStore:
    return DocumentStore(pool, owner or new_id(), LEASES, NoHints())


async def claimed(library: Library, text: str, owner: UUID) -> UUID:
    """A document that an owner works on, under a lease of some seconds' age."""
    document_id = await library.upload(text)
    documents = await store_of(library.pool, owner).claim(10, [])
    assert [document.id for document in documents] == [document_id]
    await library.pool.execute(
        "UPDATE document SET lease_until = lease_until - interval '10 seconds' WHERE id = $1", document_id
    )
    return document_id


@pytest.fixture
async def library(pool: Pool) -> Library:
    return await Library.create(pool)


@pytest.fixture
async def living_owner(database_url: str) -> AsyncIterator[UUID]:
    """An owner that holds its lock."""
    owner = new_id()
    connection = await asyncpg.connect(database_url)
    await connection.execute("SELECT pg_advisory_lock($1::integer, hashtext($2::text))", PRESENCE_CLASS, str(owner))
    yield owner
    await connection.close()


async def test_the_document_of_a_living_owner_stays_and_that_of_a_dead_one_is_queued_with_an_event(
    library: Library, living_owner: UUID
) -> None:
    kept = await claimed(library, "kept", living_owner)
    abandoned = await claimed(library, "abandoned", new_id())

    assert await store_of(library.pool).requeue_abandoned([]) == [abandoned]

    document = await library.document(abandoned)
    assert (document["state"], document["lease_owner"], document["lease_until"]) == ("queued", None, None)
    assert (await library.events(abandoned))[-1]["state"] == "queued"
    assert (await library.document(kept))["state"] == "parsing"
    assert [document.id for document in await store_of(library.pool).claim(10, [])] == [abandoned]


async def test_a_lapsed_lease_counts_even_of_a_living_owner(library: Library, living_owner: UUID) -> None:
    document_id = await claimed(library, "late", living_owner)
    await library.pool.execute("UPDATE document SET lease_until = now() - interval '1 s' WHERE id = $1", document_id)

    assert await store_of(library.pool).requeue_abandoned([]) == [document_id]


async def test_a_fresh_lease_is_left_alone(library: Library) -> None:
    await library.upload("fresh")
    assert len(await store_of(library.pool).claim(10, [])) == 1

    assert await store_of(library.pool).requeue_abandoned([]) == []


async def test_a_process_queues_again_what_it_has_and_does_not_work_on(library: Library, living_owner: UUID) -> None:
    dropped, held = await claimed(library, "dropped", living_owner), await claimed(library, "held", living_owner)

    assert await store_of(library.pool, living_owner).requeue_abandoned([held]) == [dropped]
    assert (await library.document(dropped))["attempts"] == 0


@pytest.mark.parametrize("state", ["ready", "failed", "queued"])
async def test_what_nobody_works_on_is_left_alone(library: Library, state: str) -> None:
    document_id = await library.upload(state)
    await library.pool.execute("UPDATE document SET state = $2 WHERE id = $1", document_id, state)

    assert await store_of(library.pool).requeue_abandoned([]) == []
    assert (await library.document(document_id))["state"] == state


async def test_sweepers_at_once_find_each_document_once(library: Library) -> None:
    other = await Library.create(library.pool)
    documents = [await claimed(home, str(number), new_id()) for number in range(3) for home in (library, other)]

    found = await asyncio.gather(*(store_of(library.pool).requeue_abandoned([]) for _ in range(5)))

    assert sorted(document_id for ids in found for document_id in ids) == sorted(documents)


async def test_documents_are_claimed_in_turns_over_tenants(library: Library) -> None:
    other = await Library.create(library.pool)
    for number in range(20):
        await library.upload(f"crowd {number}", f"{number}.md")
    lone = await other.upload("lone")

    first = [document.id for _ in range(3) for document in await store_of(library.pool).claim(1, [])]

    assert lone in first


async def test_documents_that_failed_and_are_tried_again_queue_behind_others(library: Library) -> None:
    other = await Library.create(library.pool)
    again = [await library.upload(f"again {number}", f"{number}.md") for number in range(10)]
    await library.pool.execute("UPDATE document SET state = 'failed'")
    await library.pool.execute("UPDATE document SET state = 'queued' WHERE id = ANY ($1::uuid[])", again)
    lone = await other.upload("lone")

    first = [document.id for _ in range(3) for document in await store_of(library.pool).claim(1, [])]

    assert lone in first
