"""Vectors of a document's texts, through the cache: what was embedded once is never asked for again, whoever asks."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from pgvector import Vector

from services.ingestion.courtesy import Courtesy
from services.ingestion.store import SQL, database_errors
from shared.db.pool import Pool
from shared.embeddings import EmbeddingClient, EmbeddingModelUnknown
from shared.model_registry import EmbeddingModel, ModelRegistry, UnknownModelError


class Pace:
    """How many texts a request holds, so that it takes about `seconds`: questions of people wait at the same server behind it.

    0 seconds: as many as the model takes.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self.size = most
        self._most = most
        self._seconds = seconds

    def observe(self, texts: int, seconds: float) -> None:
        """Learns from a request: slower at once, faster by doubling at most."""
        if self._seconds > 0:
            fitting = int(self._seconds * texts / max(seconds, 1e-6))
            self.size = max(1, min(fitting, 2 * self.size, self._most))


@dataclass(frozen=True, slots=True)
class EmbeddingModels:
    """The registry's embedding models, each behind the cache. `request_seconds` is what one request should take."""

    registry: ModelRegistry
    client: EmbeddingClient
    pool: Pool
    request_seconds: float
    courtesy: Courtesy
    _paces: dict[str, Pace] = field(default_factory=dict)

    def embedder(self, model: str) -> "CachedEmbedder":
        """Raises EmbeddingModelUnknown."""
        try:
            entry = self.registry.embedding_model(model)
        except UnknownModelError as error:
            raise EmbeddingModelUnknown(str(error)) from None
        pace = self._paces.setdefault(entry.name, Pace(entry.batch_size, self.request_seconds))
        return CachedEmbedder(entry, self.client, self.pool, pace, self.courtesy)


class CachedEmbedder:
    """One model behind the cache."""

    def __init__(
        self, entry: EmbeddingModel, client: EmbeddingClient, pool: Pool, pace: Pace, courtesy: Courtesy
    ) -> None:
        self._entry = entry
        self._client = client
        self._pool = pool
        self._pace = pace
        self._courtesy = courtesy
        # Everything that tells one entry's vectors from another's, but not where they come from.
        self.cache_name = f"{entry.name}/{entry.model}/{entry.dimension}"
        self._prefix = "input_type=passage:" if entry.input_type else entry.passage_prefix

    @property
    def batch_size(self) -> int:
        """Texts of the next request."""
        return self._pace.size

    def key(self, text: str) -> bytes:
        """The SHA-256 of what the model reads: the text behind its prefix."""
        return hashlib.sha256((self._prefix + text).encode()).digest()

    async def missing(self, texts: Sequence[str]) -> list[str]:
        """Those of the texts, in their order, that have no vector yet."""
        keys = [self.key(text) for text in texts]
        async with database_errors():
            rows = await self._pool.fetch(SQL["find_cached"], self.cache_name, keys)
        cached = {row["text_sha256"] for row in rows}
        return [text for text, key in zip(texts, keys, strict=True) if key not in cached]

    async def embed(self, texts: Sequence[str]) -> None:
        """Asks for the vectors of at most `batch_size` texts and caches them. Raises EmbeddingError; nothing is cached then."""
        started = time.monotonic()
        vectors = await self._client.embed_passages(self._entry.name, texts)
        took = time.monotonic() - started
        self._pace.observe(len(texts), took)
        keys = [self.key(text) for text in texts]
        async with database_errors():
            await self._pool.execute(
                SQL["cache_embeddings"], self.cache_name, keys, [Vector(vector) for vector in vectors]
            )
        await self._courtesy.pause(took)
