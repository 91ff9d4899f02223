"""The ingestion service as a process, between a real database, a real broker and an embeddings server of the test's own."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pytest

from shared.db.pool import Pool, PoolSettings, open_pool
from tests.integration.ingestion.library import Library, chapters, eventually
from tests.support.embedding_server import EmbeddingServer
from tests.support.stack import ServiceProcess, Stack

BATCH = 4
CHAPTERS = 100
SECONDS = 40.0  # for the slowest machine

_MODELS = """
[chat.none]
base_url = "http://127.0.0.1:9/v1"
model = "none"
default = true

[embedding.tiny]
base_url = "{url}"
model = "tiny-1"
dimension = 8
passage_prefix = "passage: "
batch_size = {batch}
timeout = 20
default = true

[embedding.wide]
base_url = "{wide_url}"
model = "wide-1"
dimension = 12
batch_size = {batch}
timeout = 20
"""


@dataclass
class Home:
    """What an ingestion service needs, and the services that were started in it."""

    stack: Stack
    pool: Pool
    embeddings: EmbeddingServer
    wide: EmbeddingServer  # of another model, to change to
    environment: dict[str, str]
    services: list[ServiceProcess] = field(default_factory=list)

    def start_ingestion(self, **environment: str) -> ServiceProcess:
        """One more replica; returns when it is ready."""
        service = self.stack.start_service("services.ingestion.main", {**self.environment, **environment})
        self.services.append(service)
        service.wait_ready()
        return service

    async def hold_in_the_middle(self, library: Library, word: str) -> UUID:
        """A document of CHAPTERS chunks whose embedding waits at the embeddings server after ten batches."""
        self.embeddings.hold_after(10)
        document_id = await library.upload(chapters(word, CHAPTERS))
        async with asyncio.timeout(SECONDS):
            await self.embeddings.held.wait()
        return document_id

    async def until_logged(self, service: ServiceProcess, event: str, document_id: UUID) -> None:
        """Returns when the service has logged an event about a document."""

        async def found() -> bool:
            lines = service.log_file.read_text().splitlines()
            return any(f'"event":"{event}"' in line and str(document_id) in line for line in lines)

        await eventually(found, f"{event} was logged", SECONDS)


@asynccontextmanager
async def _home(stack: Stack, rabbitmq_url: str, directory: Path) -> AsyncIterator[Home]:
    database_url = stack.create_database()
    pool = await open_pool(database_url, "test", PoolSettings(max_size=20))
    async with EmbeddingServer() as embeddings, EmbeddingServer(dimension=12) as wide:
        models_file = directory / "models.toml"
        models_file.write_text(_MODELS.format(url=embeddings.url, wide_url=wide.url, batch=BATCH))
        environment = {
            "DATABASE_URL": database_url,
            "RABBITMQ_URL": rabbitmq_url,
            "CHATMIND_MODELS_FILE": str(models_file),
            "CHATMIND_LEASE__SWEEP_EVERY": "0.2",
            "CHATMIND_WORK__COURTESY": "0",  # the machine of the tests is always busy
        }
        home = Home(stack, pool, embeddings, wide, environment)
        yield home
        for service in home.services:
            service.kill()
            print(service.log_tail())  # shown when the test failed
    await pool.close()
    stack.drop_database(database_url)


@pytest.fixture(scope="package")
async def shared_home(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Home]:
    """One service for all tests that leave it alive."""
    async with _home(stack, stack.create_vhost(), tmp_path_factory.mktemp("models")) as home:
        home.start_ingestion(CHATMIND_WORK__EMBED_RETRY="0.1", CHATMIND_WORK__PROGRESS_EVERY="0")
        yield home


@pytest.fixture
async def home(stack: Stack, rabbitmq_url: str, tmp_path: Path) -> AsyncIterator[Home]:
    """A database and an embeddings server for one test, which starts its services itself."""
    async with _home(stack, rabbitmq_url, tmp_path) as home:
        yield home


@pytest.fixture
def embeddings(shared_home: Home) -> Iterator[EmbeddingServer]:
    """The shared home's embeddings server, on its best behaviour before and after."""
    server = shared_home.embeddings
    yield server
    server.answer = "right"
    server.release()


@pytest.fixture
def wide(shared_home: Home) -> Iterator[EmbeddingServer]:
    """The shared home's server of the other model, likewise."""
    server = shared_home.wide
    yield server
    server.answer = "right"
    server.release()
