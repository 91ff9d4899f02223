"""Logs of a process: JSON lines on stdout, with the ids of what is being worked on."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[3]

PROGRAM = """
import asyncio, logging
import structlog
from pydantic import SecretStr
from shared.logging import configure_logging, log_context

configure_logging("gateway", "info")
log = structlog.get_logger()

async def work(run):
    with log_context(run_id=run, request_id=None):
        await asyncio.sleep(0)
        log.info("run.started", step=1)

async def main():
    with log_context(tenant_id="t"):
        await asyncio.gather(work("a"), asyncio.create_task(work("b")))
    log.info("run.left")

asyncio.run(main())
log.debug("run.unseen")
log.info("text.odd", text='line\\nbreak \\x1b[31m "好"', url=SecretStr("amqp://u:hunter2@h/"), odd={1: object})
try:
    raise KeyError("gone")
except KeyError:
    log.exception("run.crashed")
logging.getLogger("aiormq").warning("noise")
logging.getLogger("some.library").info("chatter")
logging.getLogger("some.library").warning("trouble %s", 7)
"""


def lines() -> list[dict[str, Any]]:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "hunter2" not in done.stdout
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_one_json_object_a_line_with_bound_ids() -> None:
    first, second, left, odd, crashed, trouble = lines()

    assert {(line["event"], line["run_id"], line["tenant_id"]) for line in (first, second)} == {
        ("run.started", "a", "t"),
        ("run.started", "b", "t"),
    }
    assert "request_id" not in first, "an id that is not known is left out"
    assert left.keys() == {"event", "level", "time", "service"}, "ids end with their block"
    assert (left["service"], left["level"]) == ("gateway", "info")
    assert odd["text"] == 'line\nbreak \x1b[31m "好"'
    assert odd["url"] == "**********"
    assert (crashed["level"], "KeyError: 'gone'" in crashed["exception"]) == ("error", True)
    assert (trouble["event"], trouble["level"], trouble["service"]) == ("trouble 7", "warning", "gateway")
