"""schemathesis against the whole API: no answer breaks the OpenAPI document, and none is a 5xx."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.gateway.served import ServedGateways
from tests.integration.gateway.stand_in import answering_questions
from tests.support.stack import Stack

_OPTIONS = [
    "--generation-deterministic",
    "--max-examples=4",
    "--phases=examples,coverage,fuzzing,stateful",
    # Streams don't end; tests of events read them.
    "--exclude-path-regex=/events$",
    # References (models, tools, agents) and types of files are valid by the schema and may not exist.
    "--checks=all",
    # And a knowledge base that was just created has no previous embedding to delete, which is a 404 too.
    "--exclude-checks=positive_data_acceptance,ensure_resource_availability",
    "--no-color",
]


@pytest.mark.timeout(240)
async def test_every_answer_is_as_documented(stack: Stack, tmp_path: Path) -> None:
    gateways = ServedGateways(stack)
    process = gateways.processes[0]
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        "run",
        f"{process.base_url}/openapi.json",
        f"--header=Authorization: Bearer {gateways.key}",
        *_OPTIONS,
    ]

    def run() -> "subprocess.CompletedProcess[str]":
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    async with answering_questions(gateways.environment["RABBITMQ_URL"]):
        done = await asyncio.to_thread(run)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    log = process.log_file.read_text()
    assert '"status":5' not in log
    assert '"event":"request.finished"' in log
    gateways.stop()
