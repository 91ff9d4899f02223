"""`python -m tests.faults [--case 3,7,18-24] [--seed N] [--trials N]`: exit code 1 when a case does not hold."""

import argparse
import asyncio
import random
import signal
import sys
from collections.abc import Sequence

import tests.faults.cases  # noqa: F401 - registers them
from tests.faults.bed import running_bed
from tests.faults.catalogue import Case, select_cases
from tests.faults.report import show_row, show_table
from tests.faults.running import run_case
from tests.support.reports import Row, meta_row, report_console, write_report
from tests.support.stack import Stack, start_stack


async def run(stack: Stack, cases: Sequence[Case], seed: int, trials: int | None) -> list[Row]:
    """The rows of these cases, on one bed; each is shown as it comes and the report grows with it."""
    console = report_console()
    async with running_bed(stack, random.Random(seed)) as bed:
        servers = {"postgresql": await bed.fetchval("SHOW server_version"), "rabbitmq": await bed.broker_version()}
        rows = [meta_row(seed, "seed", servers)]
        for case in cases:
            rows.append(await run_case(bed, case, seed, trials))
            show_row(rows[-1], console)
            write_report("faults", rows)
    show_table(rows[1:], console)
    return rows[1:]


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--case", default="", help="numbers and ranges; all of them by default")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--trials", type=int, default=None)
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    try:
        cases = select_cases(arguments.case)
    except (KeyError, ValueError):
        parser.error(f"no such case: {arguments.case}")
    print(f"seed {seed}: {len(cases)} cases", flush=True)
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # whoever ends it this way wants its servers to end as well
    stack = start_stack(durable=True)
    try:
        rows = asyncio.run(run(stack, cases, seed, arguments.trials))
    finally:
        stack.stop()
    return int(any(row["value"] == 0 for row in rows))


if __name__ == "__main__":
    sys.exit(main())
