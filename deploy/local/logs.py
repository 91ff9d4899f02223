"""`make logs`: the programs' logs in one stream by time, JSON lines made readable, other lines as they are."""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import merge
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.text import Text

from deploy.local.errors import StackError

POLL_SECONDS = 0.3
SHOWN_ID_LENGTH = 8
# A UUIDv7 begins with its time: its end is what tells two of them apart.
UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-([0-9a-f]{12})\b")
LEADING_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)[.,](\d{3,6})\d*(?: UTC|Z|\+00:00)? ?")
LEVEL_STYLES = {"debug": "dim", "info": "green", "warning": "yellow", "error": "red", "critical": "bold red"}
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class LogLine:
    """A line of a program's log. `time` is UTC; a line without one takes that of the line before it."""

    time: datetime
    program: str
    text: str


def print_logs(directory: Path, service: str, lines: int) -> None:
    """Prints the newest `lines` of one program or of all."""
    console = _console()
    for line in newest_lines(_files(directory, service), lines):
        console.print(render(line))


def follow_logs(directory: Path, service: str) -> None:
    """Prints what is appended from now on, until interrupted."""
    console = _console()
    tails = {file: file.stat().st_size for file in _files(directory, service)}
    while True:
        new = [_parse(file.stem, read_new(file, tails), datetime.now(UTC)) for file in tails]
        for line in merge(*new, key=lambda line: line.time):
            console.print(render(line))
        time.sleep(POLL_SECONDS)


def _console() -> Console:
    return Console(highlight=False, soft_wrap=True, emoji=False)


def render(line: LogLine) -> Text:
    """Time, level, program and event in columns, then the other fields with ids cut to their last 8 digits."""
    fields = _parse_json(line.text)
    if fields is None:
        return _columns(line.time, "", line.program, _harmless(LEADING_TIME.sub("", line.text)), "")
    level = str(fields.pop("level", ""))
    event = str(fields.pop("event", ""))
    service = str(fields.pop("service", line.program))
    fields.pop("time", None)
    trace = fields.pop("exception", None)
    rest = " ".join(f"{name}={_shorten(value)}" for name, value in fields.items() if value is not None)
    text = _columns(line.time, level, service, _harmless(event), rest)
    return text.append(f"\n{trace}", style="red") if trace else text


def _columns(when: datetime, level: str, program: str, event: str, rest: str) -> Text:
    return Text.assemble(
        (when.strftime("%H:%M:%S.%f")[:-3], "dim"),
        " ",
        (f"{level:<7}", LEVEL_STYLES.get(level, "")),
        " ",
        (f"{program:<13}", "cyan"),
        " ",
        (event, "bold" if level else ""),
        " ",
        (rest, "dim"),
    )


def _shorten(value: Any) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    return _harmless(UUID.sub(lambda match: match[1][-SHOWN_ID_LENGTH:], text))


def _harmless(text: str) -> str:
    """Without what a terminal would obey."""
    return CONTROL.sub("�", text)


def _files(directory: Path, service: str) -> list[Path]:
    files = sorted(directory.glob("*.log"))
    chosen = [file for file in files if file.stem in {service, service.replace("_", "-")}] if service else files
    if not chosen:
        names = ", ".join(file.stem for file in files)
        raise StackError(f"there is no log of {service or 'anything'}", f"one of: {names}" if names else "make up")
    return chosen


def newest_lines(files: list[Path], lines: int) -> list[LogLine]:
    parsed = [_parse(file.stem, _last_lines(file, lines), _changed_at(file)) for file in files]
    return list(merge(*parsed, key=lambda line: line.time))[-lines:]


def _last_lines(file: Path, lines: int) -> list[str]:
    return file.read_text(errors="replace").splitlines()[-lines:]


def read_new(file: Path, tails: dict[Path, int]) -> list[str]:
    """The complete lines after the remembered position; from the start of the file when it was rotated."""
    size = file.stat().st_size if file.exists() else 0
    start = tails[file] if tails[file] <= size else 0
    if size == start:
        return []
    with file.open("rb") as stream:
        stream.seek(start)
        new = stream.read(size - start)
    complete = new[: new.rfind(b"\n") + 1]
    tails[file] = start + len(complete)
    return complete.decode(errors="replace").splitlines()


def _parse(program: str, lines: list[str], fallback: datetime) -> Iterator[LogLine]:
    """A line without a time follows the one before it; those before the first time (a cut traceback) go with that.

    `fallback` stands for the time of a program that writes none.
    """
    times = [_time_of(text) for text in lines]
    latest = next((time for time in times if time), fallback)
    for text, stamp in zip(lines, times, strict=True):
        latest = max(latest, stamp or latest)
        yield LogLine(latest, program, text)


def _changed_at(file: Path) -> datetime:
    return datetime.fromtimestamp(file.stat().st_mtime, UTC)


def _time_of(text: str) -> datetime | None:
    fields = _parse_json(text)
    stamp = str(fields.get("time", "")) if fields else text
    match = LEADING_TIME.match(stamp)
    return datetime.fromisoformat(f"{match[1]}T{match[2]}.{match[3]:0<6}+00:00") if match else None


def _parse_json(text: str) -> dict[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return fields if isinstance(fields, dict) else None
