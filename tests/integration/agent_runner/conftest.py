"""Runner processes against a scripted model and a retrieval double."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.support.retrieval_double import RetrievalDouble
from tests.support.scripted_model import ScriptedModel
from tests.support.stack import ServiceProcess, Stack

MODELS = """
[chat.scripted]
base_url = "{url}"
model = "scripted"
default = true
timeouts = {{ first_byte = 20, idle = 20, total = 60 }}

[embedding.none]
base_url = "http://127.0.0.1:9/v1"
model = "none"
dimension = 3
default = true
"""

StartRunner = Callable[..., ServiceProcess]


@pytest.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    """The scripted model server."""
    async with ScriptedModel() as model:
        yield model


@pytest.fixture
async def retrieval(rabbitmq_url: str) -> AsyncIterator[RetrievalDouble]:
    """The retrieval double."""
    async with RetrievalDouble(rabbitmq_url) as retrieval:
        yield retrieval


@pytest.fixture
def start_runner(
    stack: Stack, database_url: str, rabbitmq_url: str, model: ScriptedModel, tmp_path: Path
) -> Iterator[StartRunner]:
    """Starts runner processes with extra environment; all are killed at the end."""
    models = tmp_path / "models.toml"
    models.write_text(MODELS.format(url=model.base_url))
    started: list[ServiceProcess] = []

    def start(**extra: str) -> ServiceProcess:
        env = {"DATABASE_URL": database_url, "RABBITMQ_URL": rabbitmq_url, "CHATMIND_MODELS_FILE": str(models), **extra}
        process = stack.start_service("services.agent_runner.main", env)
        process.wait_ready()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()


@pytest.fixture
async def gateway(stack: Stack, database_url: str, rabbitmq_url: str) -> AsyncIterator[ServiceProcess]:
    process = stack.start_service("services.gateway.main", {"DATABASE_URL": database_url, "RABBITMQ_URL": rabbitmq_url})
    await asyncio.to_thread(process.wait_ready)
    yield process
    process.kill()
