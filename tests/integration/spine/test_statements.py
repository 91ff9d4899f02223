"""Query files and the migrated schema fit together."""

import re

from shared.db.pool import Pool
from tests.integration.spine.statements import REPOSITORY, STATEMENTS, query_files


async def test_every_statement_prepares_on_the_migrated_schema(pool: Pool) -> None:
    assert len(query_files()) >= 10, "the query files were not found"
    refused = []
    async with pool.acquire() as connection:
        for name, statement in STATEMENTS.items():
            try:
                await connection.prepare(statement)
            except Exception as error:
                refused.append(f"{name}: {error}")
    assert not refused, "\n".join(["", *refused])


def test_every_statement_is_used() -> None:
    program = "\n".join(
        path.read_text() for package in ("services", "shared") for path in (REPOSITORY / package).rglob("*.py")
    )
    # A name may be put together: SQL[f"{noun}_events"].
    names = {re.sub(r"\{\w+\}", r"\\w+", text) for text in re.findall(r'"([a-z_{}]+)"', program)}
    used = re.compile("|".join(sorted(names)))
    unused = [name for name in STATEMENTS if not used.fullmatch(name.split()[1])]
    assert not unused


def test_every_query_file_is_loaded() -> None:
    """A file beside its user is loaded by name; nobody loads files that these tests don't see."""
    program = [path for package in ("services", "shared") for path in (REPOSITORY / package).rglob("*.py")]
    loaded = {
        (path.parent / name).resolve()
        for path in program
        for name in re.findall(r'with_name\("([a-z_/]+\.sql)"\)', path.read_text())
    }
    assert loaded == set(query_files())
