"""`python -m tests.bench [--only ingestion,memory] [--seed N]`: `make bench`."""

import argparse
import asyncio
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from rich import box
from rich.table import Table

from tests.bench.ingestion import ingestion_rows, memory_rows
from tests.support.reports import REPORTS, Row, meta_row, report_console, write_report
from tests.support.stack import start_stack

PARTS = ("ingestion", "memory")


async def measure(parts: list[str], seed: int) -> list[Row]:
    """All rows, shown as they come; the report grows with them."""
    console = report_console()
    rows = [meta_row(seed, "seed", {})]
    async for row in _rows(parts, seed):
        rows.append(row)
        write_report("bench", rows)
        console.print(f"{row['name']:<28} {row['value']} {row['unit']}", markup=False)
    return rows[1:]


async def _rows(parts: list[str], seed: int) -> AsyncIterator[Row]:
    if "ingestion" in parts:
        stack = start_stack(durable=True)
        try:
            with tempfile.TemporaryDirectory() as directory:
                async for row in ingestion_rows(stack, Path(directory), seed):
                    yield row
        finally:
            stack.stop()
    if "memory" in parts:
        async for row in memory_rows(seed):
            yield row


def show(rows: list[Row]) -> None:
    """A line a row, with its baseline."""
    table = Table("what", "value", "", "baseline", "ratio", "against", box=box.SIMPLE)
    for row in rows:
        table.add_row(*(str(row.get(name, "")) for name in ("name", "value", "unit", "baseline", "ratio", "against")))
    console = report_console()
    console.print(table)
    console.print(str(REPORTS / "bench.json"))


def main() -> None:
    """Measures and shows."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # its servers are to end as well
    parts = [part for part in PARTS if not arguments.only or part in arguments.only.split(",")]
    show(asyncio.run(measure(parts, arguments.seed)))


if __name__ == "__main__":
    main()
