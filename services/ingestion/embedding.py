"""Vectors of a document's texts, through the cache: what was embedded once is never asked for again, whoever asks."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from pgvector import Vector

from services.ingestion.store import SQL, database_errors
from shared.db.pool import Pool
from shared.embeddings import EmbeddingClient, EmbeddingModelUnknown
from shared.model_registry import EmbeddingModel, ModelRegistry, UnknownModelError


@dataclass(frozen=True, slots=True)
class EmbeddingModels:
    """The registry's embedding models, each behind the cache."""

    registry: ModelRegistry
    client: EmbeddingClient
    pool: Pool

    def embedder(self, model: str) -> "CachedEmbedder":
        """Raises EmbeddingModelUnknown."""
        try:
            return CachedEmbedder(self.registry.embedding_model(model), self.client, self.pool)
        except UnknownModelError as error:
            raise EmbeddingModelUnknown(str(error)) from None


class CachedEmbedder:
    """One model behind the cache."""

    def __init__(self, entry: EmbeddingModel, client: EmbeddingClient, pool: Pool) -> None:
        self._entry = entry
        self._client = client
        self._pool = pool
        # Everything that tells one entry's vectors from another's, but not where they come from.
        self.cache_name = f"{entry.name}/{entry.model}/{entry.dimension}"
        self.batch_size = entry.batch_size
        self._prefix = "input_type=passage:" if entry.input_type else entry.passage_prefix

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
        vectors = await self._client.embed_passages(self._entry.name, texts)
        keys = [self.key(text) for text in texts]
        async with database_errors():
            await self._pool.execute(
                SQL["cache_embeddings"], self.cache_name, keys, [Vector(vector) for vector in vectors]
            )
