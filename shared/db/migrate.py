"""Brings the database to the newest schema: `python -m shared.db.migrate`.

Migrations are numbered, forward only, plain SQL run by Alembic. All of them run in one transaction under an advisory lock, so that two
migrators at once, or one that is killed half way, leave a sound schema. The accounts of the services (accounts.py) get their rights in the
same transaction; the variables CHATMIND_GATEWAY_DATABASE_PASSWORD and so on make those that are missing.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import psycopg
import sqlalchemy
from alembic import command
from alembic.config import Config

from shared.db.accounts import Connection, apply_accounts, passwords_in

MIGRATIONS = Path(__file__).parent / "migrations"
_LOCK = 7_305_115_220_331  # any number that nobody else uses in this database
_REMEDY_OF_ACCOUNTS = (
    "The database's owner makes these accounts: let a superuser run ALTER ROLE ... CREATEROLE for it once."
)


class MigrationError(Exception):
    """The database could not be migrated."""


def migrate(database_url: str, passwords: Mapping[str, str]) -> None:
    """Runs every migration that is missing, then gives the services' accounts their rights; `passwords` by service, of those to be made.

    Raises MigrationError with the remedy when the database can't be reached or lacks pgvector.
    """
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    engine = sqlalchemy.create_engine(_engine_url(database_url))
    try:
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            apply_accounts(cast(Connection, connection.connection.driver_connection), passwords)
    except sqlalchemy.exc.DBAPIError as error:
        raise MigrationError(_remedy(error)) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise MigrationError(f"{error}\n{_REMEDY_OF_ACCOUNTS}") from error
    finally:
        engine.dispose()


def _engine_url(database_url: str) -> sqlalchemy.URL:
    try:
        url = sqlalchemy.make_url(database_url)
    except sqlalchemy.exc.ArgumentError:
        url = None
    if url is None or url.drivername not in {"postgresql", "postgres"}:
        raise MigrationError("DATABASE_URL is not of the form postgresql://user:password@host:5432/database")
    return url.set(drivername="postgresql+psycopg")


def _remedy(error: sqlalchemy.exc.DBAPIError) -> str:
    cause = str(error.orig).strip()
    if "permission denied to create extension" in cause:
        remedy = "Let a superuser run CREATE EXTENSION vector and CREATE EXTENSION btree_gin in this database once."
        return f"{cause}\n{remedy}"
    if 'extension "vector"' in cause:
        remedy = "Install pgvector >= 0.8.4 on the database server (package postgresql-NN-pgvector, or the image pgvector/pgvector:pg18)."
        return f"{cause}\n{remedy}"
    if isinstance(error, sqlalchemy.exc.OperationalError):
        return f"{cause}\nIs DATABASE_URL right, and is PostgreSQL running?"
    return cause


def main() -> int:
    """Returns the process's exit code: 0 migrated, 1 failed, 2 not configured."""
    database_url = os.environ.get("DATABASE_URL")
    if not database_url:
        sys.stderr.write("DATABASE_URL is not set\n")
        return 2
    try:
        migrate(database_url, passwords_in(os.environ))
    except MigrationError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
