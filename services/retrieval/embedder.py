"""The vectors of questions, the newest of them from memory."""

from collections import OrderedDict

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

    async def embed(self, model: str, query: str) -> NDArray[np.float32]:
        """The question's vector, shape (dimension,). Raises EmbeddingError."""
        query = query[: self._max_chars]
        key = (model, query)
        vector = self._cache.get(key)
        if vector is None:
            vector = (await self._client.embed_queries(model, [query]))[0]
            self._cache[key] = vector
            if len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(key)
        return vector
