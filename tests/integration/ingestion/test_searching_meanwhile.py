"""Searches while the embedding model of a knowledge base is changed and changed back: none fails, none finds less."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.integration.ingestion.conftest import SECONDS, Home
from tests.integration.ingestion.library import chapters, eventually
from tests.support.api import Json, RunningGateway, create_knowledge_base, created, upload

TOP_K = 5
CHAPTERS = 60


@dataclass
class Searches:
    """One search after another, and what became of them."""

    client: httpx.AsyncClient
    path: str
    models: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """For ever."""
        while True:
            mode = ("dense", "hybrid")[len(self.models) % 2]
            body = {"query": f"part {len(self.models) % CHAPTERS}", "top_k": TOP_K, "mode": mode}
            answer = await self.client.post(f"{self.path}/search", json=body)
            base = await created(self.client.get(self.path))
            self.models.append(base["embedding_model"])
            if answer.status_code != 200 or len(answer.json()["hits"]) != TOP_K:
                self.failed.append(answer.text)

    async def until_answered_by(self, model: str, more: int = 10) -> None:
        """Returns after some searches with a model."""

        async def answered() -> bool:
            return self.models[-more:] == [model] * more

        await eventually(answered, f"{more} searches by {model}", SECONDS)


@asynccontextmanager
async def searching(client: httpx.AsyncClient, path: str) -> AsyncIterator[Searches]:
    searches = Searches(client, path)
    task = asyncio.create_task(searches.run())
    try:
        yield searches
    finally:
        task.cancel()
        await asyncio.wait([task])
    if not task.cancelled():
        task.result()


@pytest.fixture
async def client(home: Home) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a gateway, with retrieval behind it."""
    home.services.append(home.stack.start_service("services.retrieval.main", home.environment))
    home.services[-1].wait_ready()
    urls = (home.environment["DATABASE_URL"], home.environment["RABBITMQ_URL"])
    gateway = RunningGateway(*urls, models_file=home.environment["CHATMIND_MODELS_FILE"])
    await gateway.start()
    yield await gateway.client()
    await gateway.stop()


async def until(client: httpx.AsyncClient, path: str, what: str, **wanted: Any) -> Json:
    """The resource as soon as it has these values."""

    async def reached() -> bool:
        body = await created(client.get(path))
        return all(body[name] == value for name, value in wanted.items())

    await eventually(reached, what, SECONDS)
    return await created(client.get(path))


async def test_no_search_fails_while_the_model_is_changed_and_its_worker_killed(
    home: Home, client: httpx.AsyncClient
) -> None:
    worker = home.start_ingestion()
    base = await create_knowledge_base(client, embedding_model="tiny")
    path = f"/api/knowledge-bases/{base['id']}"
    for word in ("one", "two", "three"):
        document = await upload(client, base["id"], chapters(word, CHAPTERS).encode())
        await until(client, f"/api/documents/{document['id']}", "the document is ready", state="ready")
    async with searching(client, path) as searches:
        await searches.until_answered_by("tiny")
        home.wide.hold_after(30)
        await created(client.patch(path, json={"embedding_model": "wide"}))
        async with asyncio.timeout(SECONDS):
            await home.wide.held.wait()
        worker.kill()
        home.wide.release()
        home.start_ingestion()
        await until(client, path, "the wide model serves", embedding_model="wide")
        await searches.until_answered_by("wide")
        await created(client.post(f"{path}/embedding/rollback"))
        await searches.until_answered_by("tiny")
    assert searches.failed == []
    assert len(home.wide.texts) <= 2 * 3 * CHAPTERS * 1.1 + len(searches.models)
