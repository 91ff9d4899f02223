"""A service of which a loop fails ends as a process, also while its consumer can't reach the broker."""

import subprocess
import sys

from tests.support.stack import REPOSITORY, clean_environment

PROGRAM = """
import asyncio
from shared.service import Service, main, make_broker, run_service
from shared.settings import CommonSettings, load_settings
from shared.topology import RUNS
from shared.wake_ups import subscribe_to_wake_ups

async def failing():
    await asyncio.sleep(0.5)
    raise RuntimeError("a loop failed")

async def take(body):
    pass

async def start():
    settings = load_settings(CommonSettings)
    broker = make_broker(settings, "probe", apply_types=False)
    subscribe_to_wake_ups(broker, RUNS, 1, take)
    await run_service(Service(name="probe", broker=broker, loops=[failing], checks={}), settings)

main(start)
"""


def test_the_process_ends_with_its_failed_loop() -> None:
    environment = {
        **clean_environment(),
        "DATABASE_URL": "postgresql://nobody@127.0.0.1/none",
        "RABBITMQ_URL": "amqp://127.0.0.1:1/",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "a loop failed" in done.stdout + done.stderr
