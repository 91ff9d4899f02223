"""What an evaluation shows on the terminal."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from tests.support.reports import Row

_SHOWN = ("hit@1", "hit@5", "hit@10", "MRR@10", "nDCG@10")


def show_files(part: str, rows: Sequence[Row], console: Console) -> None:
    """How many are met, and which are not."""
    console.print(f"{part}: {sum(row['value'] for row in rows)} of {len(rows)} as expected")
    for row in rows:
        if not row["value"]:
            console.print(f"  {row['name']}: {row['reason']}", style="red", markup=False)


def show_retrieval(rows: Sequence[Row], console: Console) -> None:
    """A line for each set, mode and way of embedding; then what the threshold keeps."""
    table = Table("set", "mode", "embed", *_SHOWN, box=box.SIMPLE)
    lines: dict[tuple[str, str, str], dict[str, float]] = {}
    for row in rows:
        match str(row["name"]).split("/"):
            case ["retrieval", name, mode, embed, metric]:
                lines.setdefault((name, mode, embed), {})[metric] = row["value"]
            case ["unanswerable", *_]:
                console.print(f"{row['name']} {row['value']:.3f}")
            case _:
                pass
    for key, figures in lines.items():
        if "hit@1" in figures:
            table.add_row(*key, *(f"{figures[metric]:.3f}" for metric in _SHOWN))
    console.print(table)
