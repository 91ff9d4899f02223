"""`make logs`: what a reader sees of JSON lines, of PostgreSQL's and of RabbitMQ's."""

import os
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from deploy.local.errors import StackError
from deploy.local.logs import LogLine, newest_lines, print_logs, read_new, render

NOON = datetime(2026, 3, 4, 12, 0, 0, 250_000, tzinfo=UTC)
RUN_ID = "0195a1b2-c3d4-7e5f-8a9b-0123456789ab"


def json_line(time: str, event: str, **fields: object) -> str:
    return orjson.dumps({"time": time, "level": "info", "service": "gateway", "event": event, **fields}).decode()


def test_a_json_line_becomes_columns_with_short_ids() -> None:
    text = json_line("2026-03-04T12:00:00.250000Z", "run.started", run_id=RUN_ID, step=3, error=None)
    shown = render(LogLine(NOON, "gateway", text)).plain
    assert shown == "12:00:00.250 info    gateway       run.started run_id=456789ab step=3"


def test_a_traceback_stands_below_its_line() -> None:
    text = json_line("2026-03-04T12:00:00Z", "run.failed", exception="Traceback\nValueError: no")
    assert render(LogLine(NOON, "gateway", text)).plain.endswith("\nTraceback\nValueError: no")


@pytest.mark.parametrize("raw", ["not json", "{broken", "[1]", '"text"'])
def test_other_lines_stay_as_they_are(raw: str) -> None:
    assert raw in render(LogLine(NOON, "postgres", raw)).plain


def test_control_characters_do_not_reach_the_terminal() -> None:
    shown = render(LogLine(NOON, "gateway", json_line("2026-03-04T12:00:00Z", "x", name="a\x1b[31mb"))).plain
    assert "\x1b" not in shown


def test_programs_are_merged_by_time_and_lines_without_one_stay_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "postgres.log").write_text("2026-03-04 12:00:01.000 UTC [7] LOG:  ready\n\tcontinued\n")
    (tmp_path / "rabbitmq.log").write_text("2026-03-04 12:00:02.123456+00:00 [info] <0.9.0> started\n")
    (tmp_path / "gateway.log").write_text(
        json_line("2026-03-04T12:00:00.500Z", "first") + "\n" + json_line("2026-03-04T12:00:03.000Z", "last") + "\n"
    )
    lines = newest_lines(sorted(tmp_path.glob("*.log")), 50)
    assert [line.program for line in lines] == ["gateway", "postgres", "postgres", "rabbitmq", "gateway"]
    assert lines[2].text == "\tcontinued"
    assert lines[2].time == lines[1].time


def test_only_the_newest_lines_are_shown(tmp_path: Path) -> None:
    rows = [json_line(f"2026-03-04T12:00:{second:02}.000Z", f"event.{second}") for second in range(30)]
    (tmp_path / "gateway.log").write_text("\n".join(rows) + "\n")
    assert [line.time.second for line in newest_lines([tmp_path / "gateway.log"], 3)] == [27, 28, 29]


def test_following_gives_complete_lines_once_and_survives_rotation(tmp_path: Path) -> None:
    file = tmp_path / "gateway.log"
    file.write_text("old\n")
    tails = {file: file.stat().st_size}
    with file.open("a") as log:
        log.write("one\ntw")
    assert read_new(file, tails) == ["one"]
    assert read_new(file, tails) == []
    with file.open("a") as log:
        log.write("o\n")
    assert read_new(file, tails) == ["two"]
    file.write_text("new\n")
    assert read_new(file, tails) == ["new"]


def test_an_unknown_service_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "agent-runner.log").write_text("x\n")
    with pytest.raises(StackError, match="agent-runner"):
        print_logs(tmp_path, "runner", 10)


def test_lines_before_the_first_time_go_with_that(tmp_path: Path) -> None:
    (tmp_path / "gateway.log").write_text(f"  cut traceback\n{json_line('2026-03-04T12:00:00.250Z', 'first')}\n")
    assert [line.time for line in newest_lines([tmp_path / "gateway.log"], 5)] == [NOON, NOON]


def test_a_log_without_any_time_stands_where_it_was_last_written(tmp_path: Path) -> None:
    (tmp_path / "embeddings.log").write_text("listening\n")
    os.utime(tmp_path / "embeddings.log", (NOON.timestamp(), NOON.timestamp()))
    assert [line.time for line in newest_lines([tmp_path / "embeddings.log"], 5)] == [NOON]
