"""The product under evaluation: its own services, its own API, and the bundled embedding model behind a file of vectors."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.system import HelperProcess, System, post_json
from tests.evaluation.sets import Source
from tests.support.stack import REPOSITORY, Stack
from tests.support.waiting import eventually

Json = dict[str, Any]

VECTORS = REPOSITORY / ".local" / "eval" / "vectors.sqlite"
_MODELS = """
[chat.offline]
base_url = "{offline}/v1"
model = "chatmind-offline"
default = true

[embedding.e5-small]
base_url = "{embeddings}/v1"
model = "multilingual-e5-small-q4"
dimension = 384
input_type = true
score_range = [0.82, 0.94]
batch_size = 16
default = true
"""
_LIMITS = {
    "CHATMIND_WORK__EMBED_SECONDS": "0",  # nobody waits for an answer meanwhile
    "CHATMIND_RATE__PER_SECOND": "0",
}
_READY_SECONDS = 7200.0


@asynccontextmanager
async def running_product(stack: Stack, directory: Path, more_models: str = "") -> AsyncIterator["Product"]:
    """One of each service, with settings that leave room for questions by the thousand. `more_models` is TOML for the registry."""
    embeddings = HelperProcess(["tests.evaluation.embedding_cache", "--file", str(VECTORS)], "/health", directory)
    offline = HelperProcess(["deploy.offline_model", "--token-ms", "0"], "/health", directory)
    models = directory / "models.toml"
    models.write_text(_MODELS.format(offline=offline.base_url, embeddings=embeddings.base_url) + more_models)
    environment = {
        "DATABASE_URL": stack.create_database(),
        "RABBITMQ_URL": stack.create_vhost(),
        "CHATMIND_MODELS_FILE": str(models),
        **_LIMITS,
    }
    system = System(stack, environment)
    try:
        await embeddings.wait_ready()
        await offline.wait_ready()
        system.start(replicas=1)
        system.connect()
        yield Product(system.clients[0])
    finally:
        for client in system.clients:
            await client.aclose()
        system.stop()
        embeddings.kill()
        offline.kill()


@dataclass(frozen=True, slots=True)
class Product:
    """What an evaluation does, by HTTP."""

    client: httpx.AsyncClient

    async def upload(self, name: str, sources: Sequence[Source], settings: Json) -> str:
        """A knowledge base that holds these files, once they are ready; its id. Raises AssertionError when one failed."""
        base = await post_json(self.client, "/api/knowledge-bases", {"name": name, "settings": settings})
        for first in range(0, len(sources), 10):
            parts = [("files", (s.filename, s.content.encode(), _media_type(s))) for s in sources[first : first + 10]]
            answer = await self.client.post(f"/api/knowledge-bases/{base['id']}/documents", files=parts)
            assert answer.status_code == 202, answer.text

        async def all_ready() -> bool:
            items = await self.documents(base["id"])
            failed = [item for item in items if item["state"] == "failed"]
            assert not failed, failed
            return all(item["state"] == "ready" for item in items)

        await eventually(all_ready, within=_READY_SECONDS, every=0.5)
        return str(base["id"])

    async def documents(self, base_id: str) -> list[Json]:
        """All documents of a knowledge base."""
        return await self._list(f"/api/knowledge-bases/{base_id}/documents")

    async def chunks(self, base_id: str) -> list[Json]:
        """All chunks of a knowledge base, each with its document's `filename`."""
        return [
            {**chunk, "filename": document["filename"]}
            for document in await self.documents(base_id)
            for chunk in await self._list(f"/api/documents/{document['id']}/chunks")
        ]

    async def search(self, base_id: str, query: str, **options: Any) -> list[Json]:
        """The hits, best first."""
        path = f"/api/knowledge-bases/{base_id}/search"
        body = {"query": query, "top_k": 10, **options}
        try:
            answer = await post_json(self.client, path, body)
        except httpx.TransportError:  # an idle connection that the gateway closed meanwhile
            answer = await post_json(self.client, path, body)
        hits: list[Json] = answer["hits"]
        return hits

    async def delete(self, base_id: str) -> None:
        """Removes a knowledge base."""
        answer = await self.client.delete(f"/api/knowledge-bases/{base_id}")
        assert answer.status_code == 204, answer.text

    async def _list(self, path: str) -> list[Json]:
        items: list[Json] = []
        cursor: str | None = None
        while True:
            page = {"limit": 200} | ({"cursor": cursor} if cursor else {})
            answer = (await self.client.get(path, params=page)).json()
            items += answer["items"]
            cursor = answer["next_cursor"]
            if cursor is None:
                return items


def _media_type(source: Source) -> str:
    return "text/plain" if source.filename.endswith(".txt") else "text/markdown"
