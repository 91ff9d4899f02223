"""A database whose time stands still until a test moves it, with the production statements unchanged.

A schema in front of pg_catalog holds functions of the clock's names, so that `now()` in a statement, trigger or function means theirs.
Defaults of columns were bound to the real clock when the tables were made: this one starts ahead of it, and whatever they hold has passed.
"""

from datetime import UTC, datetime, timedelta

import asyncpg
import psycopg
from psycopg import sql

_FUNCTIONS = """
CREATE SCHEMA test_clock;
CREATE TABLE test_clock.clock (at timestamptz NOT NULL);
INSERT INTO test_clock.clock VALUES (pg_catalog.now());
CREATE FUNCTION test_clock.now() RETURNS timestamptz STABLE LANGUAGE sql AS $$ SELECT at FROM test_clock.clock $$;
CREATE FUNCTION test_clock.clock_timestamp() RETURNS timestamptz STABLE LANGUAGE sql AS $$ SELECT at FROM test_clock.clock $$;
"""


def install_clock(database_url: str) -> None:
    """For all connections from now on."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(_FUNCTIONS)
        name = sql.Identifier(database_url.rsplit("/", 1)[1])
        connection.execute(sql.SQL("ALTER DATABASE {} SET search_path = test_clock, pg_catalog, public").format(name))


class Clock:
    """The time, which moves when it is told to."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._connection = connection
        self.now = datetime.now(UTC) + timedelta(hours=1)

    async def move(self, seconds: float = 0) -> None:
        self.now += timedelta(seconds=seconds)
        await self._connection.execute("UPDATE test_clock.clock SET at = $1", self.now)
