"""Whether models can be used now: by their configuration, and by a look at their endpoints that is remembered for a while."""

import asyncio
import time
from typing import Literal

import httpx

from services.gateway.schemas.catalogue import ModelView
from shared.model_registry import ChatModel, EmbeddingModel, ModelRegistry

_Model = ChatModel | EmbeddingModel


class ModelStatus:
    """Views of all models. Endpoints are asked at once, each within `timeout`; answers hold for `cache_seconds`."""

    def __init__(self, registry: ModelRegistry, http: httpx.AsyncClient, timeout: float, cache_seconds: float) -> None:
        self._registry = registry
        self._http = http
        self._timeout = timeout
        self._cache_seconds = cache_seconds
        self._views: list[ModelView] = []
        self._until = 0.0
        self._one_at_a_time = asyncio.Lock()

    async def views(self) -> list[ModelView]:
        """The chat models, then the embedding models, as in the models file."""
        async with self._one_at_a_time:
            if time.monotonic() >= self._until:
                chat = [self._view("chat", model) for model in self._registry.chat.values()]
                embedding = [self._view("embedding", model) for model in self._registry.embedding.values()]
                self._views = list(await asyncio.gather(*chat, *embedding))
                self._until = time.monotonic() + self._cache_seconds
            return self._views

    async def _view(self, kind: Literal["chat", "embedding"], model: _Model) -> ModelView:
        problem = model.problem or await self._look(model)
        return ModelView(
            name=model.name,
            kind=kind,
            model=model.model,
            default=model.default,
            usable=problem is None,
            problem=problem,
        )

    async def _look(self, model: _Model) -> str | None:
        headers = {"Authorization": f"Bearer {model.api_key.get_secret_value()}"} if model.api_key else {}
        try:
            async with self._http.stream(
                "GET", f"{model.base_url}/models", headers=headers, timeout=self._timeout
            ) as response:
                return _problem_of(response.status_code)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return f"the endpoint can't be reached ({type(error).__name__})"


def _problem_of(status: int) -> str | None:
    # An endpoint without a list of models (404) may well serve them.
    if status in (401, 403):
        return "the endpoint refused the key"
    if status >= 500:
        return f"the endpoint answers with status {status}"
    return None
