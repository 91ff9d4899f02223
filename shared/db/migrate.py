"""Brings the database to the newest schema: `python -m shared.db.migrate`.

Migrations are numbered, forward only, plain SQL run by Alembic. All of them run in one transaction under an advisory lock, so that two
migrators at once, or one that is killed half way, leave a sound schema.
"""

import os
import sys
from pathlib import Path

import sqlalchemy
from alembic import command
from alembic.config import Config

MIGRATIONS = Path(__file__).parent / "migrations"
_LOCK = 7_305_115_220_331  # any number that nobody else uses in this database


class MigrationError(Exception):
    """The database could not be migrated."""


def migrate(database_url: str) -> None:
    """Runs every migration that is missing.

    Raises MigrationError with the remedy when the database can't be reached or lacks pgvector.
    """
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    engine = sqlalchemy.create_engine(database_url.replace("postgresql://", "postgresql+psycopg://", 1))
    try:
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except sqlalchemy.exc.DBAPIError as error:
        raise MigrationError(_remedy(error)) from error
    finally:
        engine.dispose()


def _remedy(error: sqlalchemy.exc.DBAPIError) -> str:
    cause = str(error.orig).strip()
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
        migrate(database_url)
    except MigrationError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
