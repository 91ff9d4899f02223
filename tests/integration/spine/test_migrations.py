"""The migrator as a process, on empty, current, shared and abandoned databases."""

import os
import subprocess
import sys
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from tests.support.stack import REPOSITORY, Stack, clean_environment, free_port
from tests.support.waiting import eventually

Schema = list[tuple[str, ...]]

# Everything a migration can make, in words that don't depend on object ids.
SCHEMA = """
SELECT 'column', table_name, column_name, data_type, is_nullable, coalesce(column_default, '') FROM information_schema.columns
WHERE table_schema = 'public'
UNION ALL SELECT 'index', tablename, indexname, indexdef, '', '' FROM pg_indexes WHERE schemaname = 'public'
UNION ALL SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid), '', '' FROM pg_constraint
WHERE connamespace = 'public'::regnamespace AND contype <> 'n'
UNION ALL SELECT 'function', proname, pg_get_functiondef(p.oid), '', '', '' FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
WHERE pronamespace = 'public'::regnamespace AND l.lanname = 'sql'
UNION ALL SELECT 'version', version_num, '', '', '', '' FROM alembic_version
ORDER BY 1, 2, 3, 4
"""


def start_migrator(database_url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "shared.db.migrate"],
        cwd=REPOSITORY,
        env=clean_environment() | {"DATABASE_URL": database_url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def migrate(database_url: str) -> tuple[int, str]:
    """Exit code and what it wrote to stderr."""
    process = start_migrator(database_url)
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


def schema(database_url: str) -> Schema:
    with psycopg.connect(database_url) as connection:
        return connection.execute(SCHEMA).fetchall()


@pytest.fixture
def empty_database_url(stack: Stack) -> Iterator[str]:
    url = stack.create_database(migrated=False)
    yield url
    stack.drop_database(url)


@pytest.fixture
def expected(database_url: str) -> Schema:
    """The schema of a database that was migrated once, without disturbance."""
    return schema(database_url)


def test_empty_to_head_and_head_to_head(empty_database_url: str, expected: Schema) -> None:
    assert migrate(empty_database_url) == (0, "")
    with psycopg.connect(empty_database_url) as connection:
        connection.execute("INSERT INTO tenant (id, name) VALUES (gen_random_uuid(), 'kept')")

    assert migrate(empty_database_url) == (0, "")

    assert schema(empty_database_url) == expected
    with psycopg.connect(empty_database_url) as connection:
        assert connection.execute("SELECT name FROM tenant").fetchall() == [("kept",)]


def test_two_migrators_at_once(empty_database_url: str, expected: Schema) -> None:
    migrators = [start_migrator(empty_database_url) for _ in range(2)]
    outcomes = [(migrator.communicate(timeout=60)[1], migrator.returncode) for migrator in migrators]

    assert outcomes == [("", 0), ("", 0)]
    assert schema(empty_database_url) == expected


async def test_a_migrator_that_is_killed_half_way(empty_database_url: str, expected: Schema) -> None:
    with (
        psycopg.connect(empty_database_url) as blocker,
        psycopg.connect(empty_database_url, autocommit=True) as observer,
    ):
        # The name of a table that the first migration makes late is taken by a transaction that is still open.
        blocker.execute("CREATE TABLE idempotency_key ()")
        migrator = start_migrator(empty_database_url)

        async def is_blocked() -> bool:
            row = observer.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            ).fetchone()
            return row == (1,)

        await eventually(is_blocked)
        migrator.kill()
        migrator.communicate()
        blocker.rollback()

    assert migrate(empty_database_url) == (0, "")
    assert schema(empty_database_url) == expected


def test_a_database_without_pgvector_names_the_remedy(stack: Stack) -> None:
    """Nobody has made the extension, and the migrating role may not."""
    name = f"bare_{os.getpid()}"
    with psycopg.connect(stack.postgres.url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
    url = stack.postgres.database_url(name)
    try:
        code, errors = migrate(url)
    finally:
        stack.drop_database(url)

    assert code == 1
    assert 'extension "vector"' in errors
    assert "CREATE EXTENSION vector" in errors
    assert "Traceback" not in errors


def test_a_database_that_is_not_there_names_the_remedy() -> None:
    code, errors = migrate(f"postgresql://chatmind:hidden-password@127.0.0.1:{free_port()}/chatmind")

    assert code == 1
    assert "DATABASE_URL" in errors
    assert "Traceback" not in errors
    assert "hidden-password" not in errors
