"""The vectors of questions, the newest of them from memory."""

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from shared.embeddings import EmbeddingClient


class QueryEmbedder:
    """Embeds questions and keeps the vectors of the `cache_size` that were asked last."""

    def __init__(self, client: EmbeddingClient, cache_size: int) -> None:
        self._client = client
        self._cache_size = cache_size
        self._cache: OrderedDict[tuple[str, str], NDArray[np.float32]] = OrderedDict()

    async def embed(self, model: str, query: str) -> NDArray[np.float32]:
        """The question's vector, shape (dimension,). Raises EmbeddingError."""
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
