"""Every statement of every query file of the program, found by looking."""

from pathlib import Path

from shared.db.queries import load_queries

REPOSITORY = Path(__file__).resolve().parents[3]


def query_files() -> list[Path]:
    """The *.sql files that hold named statements; migrations hold none."""
    found = [path for package in ("services", "shared") for path in sorted((REPOSITORY / package).rglob("*.sql"))]
    return [path for path in found if "migrations" not in path.parts]


def all_statements() -> dict[str, str]:
    """Statements by file and name, as `shared/outbox.sql take_outbox`."""
    return {
        f"{path.relative_to(REPOSITORY).as_posix()} {name}": statement
        for path in query_files()
        for name, statement in load_queries(path).items()
    }


STATEMENTS = all_statements()
