"""Two knowledge bases whose embedding models are changed again and again while their documents change and their worker dies."""

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pytest

from services.gateway.refusals import Refusal
from services.gateway.store.embeddings import Base, discard_previous
from tests.integration.ingestion.conftest import BATCH, SECONDS, Home
from tests.integration.ingestion.library import Library, chapters, eventually
from tests.integration.ingestion.test_generations import assert_complete, change, go_back, serving
from tests.support.stack import ServiceProcess

STEPS = 40
MODELS = {"tiny": ("passage: ", 8), "wide": ("", 12), "third": ("third: ", 12)}
_THIRD = """
[embedding.third]
base_url = "{url}"
model = "wide-1"
dimension = 12
passage_prefix = "third: "
batch_size = {batch}
"""


@dataclass
class Owner:
    """Somebody who can't decide, about one base."""

    library: Library
    choice: random.Random
    documents: list[UUID] = field(default_factory=list)
    uploads: int = 0

    async def act(self) -> None:
        """Does something."""
        acts: dict[Callable[[], Awaitable[None]], int] = {
            self.upload: 4,
            self.replace: 2,
            self.delete: 2,
            self.change: 5,
            self.go_back: 2,
            self.let_go: 1,
        }
        (act,) = self.choice.choices(list(acts), list(acts.values()))
        await act()

    async def upload(self) -> None:
        self.documents.append(await self.library.upload(self._text()))

    async def replace(self) -> None:
        if self.documents:
            await self.library.replace(self.choice.choice(self.documents), self._text())

    async def delete(self) -> None:
        if len(self.documents) > 2:
            await self.library.delete(self.documents.pop(self.choice.randrange(len(self.documents))))

    async def change(self) -> None:
        await change(self.library, self.choice.choice(list(MODELS)))

    async def go_back(self) -> None:
        with suppress(Refusal):  # there is no way back
            await go_back(self.library)

    async def let_go(self) -> None:
        async with self.library.pool.acquire() as connection, connection.transaction():
            with suppress(Refusal):  # there is none
                await discard_previous(connection, Base(self.library.tenant_id, self.library.id, None))

    def _text(self) -> str:
        self.uploads += 1
        return chapters(f"{self.library.id.hex[-4:]} {self.uploads}", self.choice.randint(1, 30))

    async def until_settled(self) -> None:
        """Returns when every document is ready and the model that was asked for last serves."""

        async def settled() -> bool:
            unfinished = await self.library.pool.fetchval(
                "SELECT (SELECT count(*) FROM document WHERE knowledge_base_id = $1 AND state <> 'ready')"
                " + (SELECT count(*) FROM embedding_generation WHERE knowledge_base_id = $1 AND state IN ('building', 'failed'))",
                self.library.id,
            )
            return bool(unfinished == 0)

        await eventually(settled, "all is ready", 2 * SECONDS)

    async def assert_the_serving_one_has_all(self) -> None:
        """What makes it enough to count two generations: no chunk has a vector of another one only."""
        alone = await self.library.pool.fetchval(
            "SELECT count(*) FROM chunk_embedding AS one JOIN knowledge_base AS base ON base.id = one.knowledge_base_id"
            " WHERE base.id = $1 AND NOT EXISTS (SELECT FROM chunk_embedding AS serving WHERE serving.chunk_id = one.chunk_id"
            " AND serving.field = one.field AND serving.generation = base.embedding_generation)",
            self.library.id,
        )
        assert alone == 0

    async def until_nothing_is_left_over(self) -> None:
        """Returns when there are vectors of the generation that serves and of the one that is kept, and no others."""
        await self.library.pool.execute(
            "UPDATE embedding_generation SET not_before = now() WHERE knowledge_base_id = $1 AND state = 'discarding'",
            self.library.id,
        )

        async def clean() -> bool:
            others = await self.library.pool.fetchval(
                "SELECT count(*) FROM chunk_embedding WHERE knowledge_base_id = $1 AND generation NOT IN ("
                " SELECT embedding_generation FROM knowledge_base WHERE id = $1"
                " UNION ALL SELECT generation FROM embedding_generation WHERE knowledge_base_id = $1 AND state = 'kept')",
                self.library.id,
            )
            return bool(others == 0)

        await eventually(clean, "nothing is left of what was given up", SECONDS)


@pytest.mark.parametrize("seed", [1, 2])
async def test_whatever_is_asked_for_meanwhile_the_last_model_serves_complete(home: Home, seed: int) -> None:
    add_third_model(home)
    worker, choice = start(home), random.Random(seed)
    owners = [Owner(await Library.create(home.pool), random.Random(f"{seed} {number}")) for number in range(2)]
    for owner in owners:
        for _ in range(3):
            await owner.upload()
    for step in range(STEPS):
        await choice.choice(owners).act()
        if step % 13 == 12:
            worker.kill()
            worker = start(home)
    for owner in owners:
        await change(owner.library, "third")
        await owner.until_settled()
        generation, model = await serving(owner.library)
        assert model == "third"
        await assert_complete(owner.library, generation, *MODELS[model])
        await owner.assert_the_serving_one_has_all()
        await owner.until_nothing_is_left_over()
    assert "generation.crashed" not in worker.log_file.read_text()
    assert "document.crashed" not in worker.log_file.read_text()


def add_third_model(home: Home) -> None:
    file = Path(home.environment["CHATMIND_MODELS_FILE"])
    file.write_text(file.read_text() + _THIRD.format(url=home.wide.url, batch=BATCH))


def start(home: Home) -> ServiceProcess:
    return home.start_ingestion(CHATMIND_VECTOR_INDEXES__MIN_VECTORS="60", CHATMIND_VECTOR_INDEXES__EVERY="0.2")
