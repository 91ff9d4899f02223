"""Whether models can be used now: by their configuration, and by a look at their endpoints that is remembered for a while."""

import asyncio
import time

import httpx

from services.gateway.schemas.catalogue import ModelKind, ModelView
from shared.model_registry import ChatModel, EmbeddingModel, ModelRegistry, RerankModel

_Model = ChatModel | EmbeddingModel | RerankModel

_KEY_REFUSED = "the endpoint refused the key"


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
        """The chat models, then the embedding models, then the reranking models, as in the models file."""
        async with self._one_at_a_time:
            if time.monotonic() >= self._until:
                chat = [self._view("chat", model) for model in self._registry.chat.values()]
                embedding = [self._view("embedding", model) for model in self._registry.embedding.values()]
                rerank = [self._view("rerank", model) for model in self._registry.rerank.values()]
                self._views = list(await asyncio.gather(*chat, *embedding, *rerank))
                self._until = time.monotonic() + self._cache_seconds
            return self._views

    async def lasting_problem(self, model: EmbeddingModel) -> str | None:
        """Why a model can't be used until somebody changes something: its key is missing or refused. Not that it is away for the moment."""
        problem = model.problem
        if problem is not None:
            return problem
        if time.monotonic() < self._until:
            of_name = (view.problem for view in self._views if (view.kind, view.name) == ("embedding", model.name))
            problem = next(of_name, None)
        else:
            problem = await self._look(model)
        return problem if problem == _KEY_REFUSED else None

    async def _view(self, kind: ModelKind, model: _Model) -> ModelView:
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
        return _KEY_REFUSED
    if status >= 500:
        return f"the endpoint answers with status {status}"
    return None
