"""Which documents the sweeper wakes, and which it leaves alone."""

from collections.abc import AsyncIterator
from uuid import UUID

import asyncpg
import pytest

from services.ingestion.sweeper import Sweeper
from shared.db.pool import Pool
from shared.ids import new_id
from shared.leases import PRESENCE_CLASS, LeaseSettings
from tests.integration.ingestion.library import Library

LEASES = LeaseSettings(lease=30, wake_after=15)


def sweeper(pool: Pool, room: int = 100) -> Sweeper:
    async def room_left() -> int:
        return room

    return Sweeper(pool, LEASES, room_left, lambda: None)


async def asleep(library: Library, change: str) -> UUID:
    """A queued document without a wake-up, changed by an SQL assignment list."""
    document_id = await library.upload(change, f"{change}.md")
    await library.pool.execute("DELETE FROM outbox")
    await library.pool.execute(f"UPDATE document SET {change} WHERE id = $1", document_id)
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


@pytest.mark.parametrize(
    ("change", "woken"),
    [
        ("not_before = now() - interval '16 seconds'", 1),
        ("not_before = now() - interval '14 seconds'", 0),
        ("lease_until = now() - interval '1 second', not_before = now()", 1),
        ("lease_until = now() - interval '1 second', not_before = now() + interval '9 seconds'", 0),
        ("state = 'ready', not_before = now() - interval '1 hour'", 0),
        ("state = 'failed', not_before = now() - interval '1 hour'", 0),
        ("state = 'embedding', lease_until = now() - interval '1 second'", 1),
    ],
)
async def test_only_what_is_due_and_forgotten_is_woken(library: Library, change: str, woken: int) -> None:
    document_id = await asleep(library, change)
    assert await sweeper(library.pool).sweep() == woken
    bodies = await library.pool.fetch("SELECT kind, subject_id, body FROM outbox")
    expected = library.command(document_id)
    assert [(row["kind"], row["subject_id"]) for row in bodies] == [("IngestDocument", document_id)] * woken
    assert [expected.model_validate_json(row["body"]) for row in bodies] == [expected] * woken


async def test_a_document_is_woken_once_in_a_while(library: Library) -> None:
    await asleep(library, "not_before = now() - interval '1 hour'")
    assert await sweeper(library.pool).sweep() == 1
    assert await sweeper(library.pool).sweep() == 0  # its wake-up is in the outbox
    await library.pool.execute("DELETE FROM outbox")
    assert await sweeper(library.pool).sweep() == 0  # it has just been sent


async def test_nothing_is_added_to_a_long_queue(library: Library) -> None:
    for number in range(3):
        await asleep(library, f"not_before = now() - interval '{number + 1} hours'")
    assert await sweeper(library.pool, room=0).sweep() == 0
    assert await sweeper(library.pool, room=2).sweep() == 2


async def test_leases_of_the_dead_end_at_once_and_those_of_the_living_last(
    library: Library, living_owner: UUID
) -> None:
    held = "state = 'parsing', lease_owner = '{}', lease_until = now() + interval '{} seconds'"
    await asleep(library, held.format(living_owner, 20))
    just_taken = await asleep(library, held.format(new_id(), 29))
    dead = await asleep(library, held.format(new_id(), 20))
    assert await sweeper(library.pool).sweep() == 1
    assert await library.pool.fetchval("SELECT subject_id FROM outbox") == dead
    assert (await library.document(just_taken))["lease_owner"] is not None
