"""Reports of measurements: rows in .local/reports/NAME.json, the first of them saying what they were measured on."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from rich.console import Console

from tests.support.stack import REPOSITORY

Row = dict[str, Any]

REPORTS = REPOSITORY / ".local" / "reports"


def report_console() -> Console:
    """The terminal, or 140 columns where it is a file: tables are not to be cut."""
    return Console(width=None if sys.stdout.isatty() else 140, soft_wrap=True, highlight=False)


def meta_row(value: float, unit: str, versions: Mapping[str, str]) -> Row:
    """What the figures were measured on. `versions` are those of servers and of whatever else matters."""
    libraries = {name: version(name) for name in ("faststream", "aio-pika", "asyncpg", "fastapi")}
    return {
        "name": "meta",
        "value": value,
        "unit": unit,
        "machine": f"{os.cpu_count()} CPUs, {platform.platform()}",
        "python": platform.python_version(),
        "versions": {**libraries, **versions},
        "commit": _commit(),
    }


def write_report(name: str, rows: Sequence[Row]) -> None:
    """Replaces the report of that name."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    (REPORTS / f"{name}.json").write_text(json.dumps(list(rows), indent=1, ensure_ascii=False) + "\n")


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return done.stdout.strip() or f"unknown ({sys.platform})"
