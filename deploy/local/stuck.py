"""What is stuck in the stack's database, for `make status`."""

import asyncio
from collections.abc import Sequence

import asyncpg
from rich.console import Console
from rich.table import Table

_SHOWN = 10
_SECONDS = 5.0
_ROWS = """
SELECT kind, id::text, state, to_char(since AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') AS since, reason, count(*) OVER () AS total
FROM stuck ORDER BY stuck.since LIMIT $1
"""


def print_stuck(console: Console, database_url: str) -> bool:
    """Prints how many rows nobody is responsible for, and the oldest; whether there are none."""
    try:
        rows = asyncio.run(_oldest(database_url))
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return True  # the table above says that the database is down
    if not rows:
        return True
    console.print(f"[red]{rows[0]['total']} rows are stuck: nobody is responsible for them.[/]")
    table = Table("kind", "id", "state", "since (UTC)", "reason")
    for row in rows:
        table.add_row(row["kind"], row["id"], row["state"], row["since"], f"[red]{row['reason']}[/]")
    console.print(table)
    return False


async def _oldest(database_url: str) -> Sequence[asyncpg.Record]:
    connection = await asyncpg.connect(database_url, timeout=_SECONDS)
    try:
        return await connection.fetch(_ROWS, _SHOWN, timeout=_SECONDS)
    finally:
        await connection.close()
