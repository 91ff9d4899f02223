"""The table on the terminal."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from tests.support.reports import Row

COUNTERS = ("trials", "attempted", "acknowledged", "ok", "lost", "duplicated", "unexpected", "recovered")
_VERDICTS = {1: "[green]holds[/]", 0: "[bold red]fails[/]", None: "[yellow]skipped[/]"}


def show_row(row: Row, console: Console) -> None:
    """One line as soon as a case is done, and what was wrong with it."""
    counted = ", ".join(f"{name} {row[name]}" for name in COUNTERS if row.get(name))
    console.print(f"{row['name']:<8} {_VERDICTS[row['value']]} {row['title']} ({row.get('seconds', 0)} s; {counted})")
    if row.get("notes"):
        console.print(
            "         " + ", ".join(f"{name} {value}" for name, value in row["notes"].items()),
            style="dim",
            markup=False,
        )
    for problem in row.get("problems", []):
        console.print(f"         {problem}", style="red", markup=False)
    if row.get("skipped"):
        console.print(f"         {row['skipped']}", style="yellow", markup=False)


def show_table(rows: Sequence[Row], console: Console) -> None:
    """All cases, one a line."""
    table = Table("case", "", *COUNTERS, "p50 s", "p95 s", box=box.SIMPLE)
    for row in rows:
        figures = [str(row.get(name, "")) for name in COUNTERS]
        seconds = [_shown(row.get("resume_p50")), _shown(row.get("resume_p95"))]
        table.add_row(row["name"].removeprefix("case/"), _VERDICTS[row["value"]], *figures, *seconds)
    console.print(table)


def _shown(figure: Any) -> str:
    return "" if figure is None else str(figure)
