"""The suite's own parts: a fault that isn't injected or isn't noticed would make every case hold."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import httpx
import pytest

import tests.faults.cases  # noqa: F401 - registers them
from tests.faults.catalogue import CASES, select_cases
from tests.faults.ledger import Ledger
from tests.faults.model import Wish
from tests.faults.postgres_wire import MessageReader
from tests.faults.proxy import Proxy
from tests.faults.tally import Tally
from tests.support.stack import Stack


@pytest.fixture
async def proxy(stack: Stack) -> AsyncIterator[Proxy]:
    """A proxy before the session's PostgreSQL."""
    async with Proxy(stack.postgres.port, speaks_postgres=True) as proxy:
        yield proxy


def through(proxy: Proxy, database_url: str) -> str:
    return database_url.replace(f":{proxy.target}/", f":{proxy.port}/")


async def test_a_commit_whose_reply_is_swallowed_has_happened(proxy: Proxy, database_url: str) -> None:
    connection = await asyncpg.connect(through(proxy, database_url))
    await connection.execute("CREATE TABLE kept (n integer)")
    proxy.swallow_reply_to("COMMIT")
    with pytest.raises((asyncpg.PostgresConnectionError, OSError)):
        async with connection.transaction():
            await connection.execute("INSERT INTO kept VALUES ($1)", 7)
    assert proxy.swallowed == 1
    again = await asyncpg.connect(through(proxy, database_url))
    assert await again.fetchval("SELECT n FROM kept") == 7
    await again.close()


async def test_a_prepared_statement_is_found_by_its_text(proxy: Proxy, database_url: str) -> None:
    connection = await asyncpg.connect(through(proxy, database_url))
    await connection.execute("CREATE TABLE kept (n integer)")
    proxy.swallow_reply_to("INSERT INTO kept")
    assert await connection.fetchval("SELECT 1 + $1::integer", 1) == 2
    with pytest.raises((asyncpg.PostgresConnectionError, OSError)):
        await connection.execute("INSERT INTO kept VALUES ($1)", 8)
    again = await asyncpg.connect(database_url)
    assert await again.fetchval("SELECT n FROM kept") == 8
    await again.close()


async def test_dropped_connections_say_nothing_and_reset_ones_break(proxy: Proxy, database_url: str) -> None:
    connection = await asyncpg.connect(through(proxy, database_url))
    proxy.drop()
    with pytest.raises(TimeoutError):
        await connection.fetchval("SELECT 1", timeout=0.3)
    await proxy.heal()
    other = await asyncpg.connect(through(proxy, database_url))
    proxy.reset()
    with pytest.raises((asyncpg.PostgresConnectionError, OSError, asyncpg.InterfaceError)):
        await other.fetchval("SELECT 1")
    await proxy.refuse()
    with pytest.raises(OSError, match="Connect call failed"):
        await asyncpg.connect(through(proxy, database_url), timeout=2)
    connection.terminate()


async def test_the_ledger_tells_effects_from_repeats() -> None:
    async with Ledger() as ledger, httpx.AsyncClient(base_url=ledger.url) as client:
        headers = {"Idempotency-Key": "run:1:0", "ChatMind-Run-Id": "run"}
        for path in ("/keyed", "/keyed"):
            await client.post(path, json={"amount": 1}, headers=headers)
        assert (len(ledger.entries), len(ledger.repeats), ledger.duplicates()) == (1, 1, {})
        for _ in range(2):
            await client.post("/once", json={"amount": 1}, headers={"Idempotency-Key": "run:2:0"})
        assert ledger.duplicates() == {"run:2:0": 2}
        refused = await client.post("/keyed", json={"note": "refuse:503"}, headers={"Idempotency-Key": "other"})
        assert (refused.status_code, len(ledger.entries)) == (503, 3)
        waiting = asyncio.ensure_future(
            client.post("/keyed", json={"note": "gate:door"}, headers={"Idempotency-Key": "x"})
        )
        await ledger.someone_at("door")
        assert len(ledger.entries) == 4
        ledger.open("door")
        assert (await waiting).status_code == 200


def test_messages_are_cut_out_of_any_pieces() -> None:
    startup = b"\0\0\0\x08\x04\xd2\x16\x2f" + b"\0\0\0\x09\0\x03\0\0\0"
    stream = startup + b"Q\0\0\0\x0dCOMMIT;\0\0"
    for size in (1, 3, len(stream)):
        reader = MessageReader(greeted=False)
        pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
        assert [message for piece in pieces for message in reader.feed(piece)] == [(b"Q", b"COMMIT;\0\0")]


def test_cases_are_chosen_by_number_and_range() -> None:
    assert [case.number for case in select_cases("3,1-2")] == [3, 1, 2]
    assert [case.number for case in select_cases("")] == sorted(CASES)
    with pytest.raises(KeyError):
        select_cases("999")


def test_a_wish_survives_being_said() -> None:
    wish = Wish(id="w", text="说完了 >>> {}", repeat=2, gate="g")
    assert wish.answer == "说完了 >>> {}" * 2
    assert Wish.model_validate_json(wish.in_words("please").split("<<<", 1)[1].rsplit(">>>", 1)[0]) == wish


def test_a_tally_fails_for_what_must_not_be() -> None:
    assert not Tally(attempted=3, acknowledged=3, ok=3).failed
    assert Tally(lost=1).failed
    assert Tally(duplicated=1).failed
    tally = Tally(resume_seconds=[3.0, 1.0, 2.0])
    tally.require(True, "fine")
    assert (tally.percentile(0.5), tally.percentile(0.95)) == (2.0, 3.0)
    tally.require(False, "not fine")
    assert tally.failed
