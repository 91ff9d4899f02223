"""Which knowledge bases of the stack have an index for their vectors, for `make status`."""

import asyncio
from collections.abc import Sequence

import asyncpg
from rich.console import Console
from rich.table import Table

_SHOWN = 10
_SECONDS = 5.0
_ROWS = """
SELECT base.name, indexed.knowledge_base_id::text AS id, indexed.generation::text, coalesce(indexed.vectors::text, '?') AS vectors,
       CASE WHEN indexed.error IS NOT NULL THEN 'failed: ' || indexed.error
            WHEN indexed.relation IS NULL THEN 'is being built' ELSE 'ready' END AS state,
       (SELECT count(*) FROM vector_pending AS pending
        WHERE pending.knowledge_base_id = indexed.knowledge_base_id AND pending.generation = indexed.generation)::text AS pending
FROM vector_index AS indexed
JOIN knowledge_base AS base ON base.tenant_id = indexed.tenant_id AND base.id = indexed.knowledge_base_id
ORDER BY indexed.vectors DESC NULLS LAST, indexed.knowledge_base_id
LIMIT $1
"""


def print_vector_indexes(console: Console, database_url: str) -> None:
    """Prints the largest bases that have an index, or will have; nothing where there are none, or no database."""
    try:
        rows = asyncio.run(_largest(database_url))
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return
    if not rows:
        return
    table = Table("knowledge base", "id", "embedding", "vectors", "index", "pending", title="Large knowledge bases")
    for row in rows:
        table.add_row(*row.values())
    console.print(table)


async def _largest(database_url: str) -> Sequence[asyncpg.Record]:
    connection = await asyncpg.connect(database_url, timeout=_SECONDS)
    try:
        return await connection.fetch(_ROWS, _SHOWN, timeout=_SECONDS)
    finally:
        await connection.close()
