"""The vectors of questions, the newest of them from memory."""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from services.retrieval.settings import EmbeddingSettings
from shared.embeddings import EmbeddingClient


class QueryEmbedder:
    """Embeds the beginning of questions and keeps the vectors of those that were asked last.

    A question of 20,000 characters would take a small model longer than anybody waits, and blur what its first sentences ask.
    """

    def __init__(self, client: EmbeddingClient, settings: EmbeddingSettings) -> None:
        self._client = client
        self._max_chars = settings.max_chars
        self._cache_size = settings.cache_size
        self._cache: OrderedDict[tuple[str, str], NDArray[np.float32]] = OrderedDict()

    async def embed(self, model: str, queries: Sequence[str]) -> list[NDArray[np.float32]]:
        """The wordings' vectors, each of shape (dimension,); those not known yet are asked for in one batch. Raises EmbeddingError."""
        keys = [(model, query[: self._max_chars]) for query in queries]
        found = {key: self._cache[key] for key in keys if key in self._cache}
        if missing := [key for key in dict.fromkeys(keys) if key not in found]:
            vectors = await self._client.embed_queries(model, [query for _, query in missing])
            found |= zip(missing, vectors, strict=True)
        for key, vector in found.items():
            self._cache[key] = vector
            self._cache.move_to_end(key)
        while len(self._cache) > self._cache_size:
            self._cache.popitem(last=False)
        return [found[key] for key in keys]
