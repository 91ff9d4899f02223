"""What `GET /api/models` says about endpoints that answer, refuse, fail and don't exist."""

import asyncio
from pathlib import Path

import httpx
import pytest

from services.gateway.model_status import ModelStatus
from shared.model_registry import ModelRegistry, load_registry

MODELS = """
[chat.good]
base_url = "http://good/v1"
model = "m"
default = true
[chat.keyless]
base_url = "http://keyless/v1"
model = "m"
api_key_env = "ABSENT_KEY"
[chat.refused]
base_url = "http://refused/v1"
model = "m"
api_key_env = "SOME_KEY"
[chat.broken]
base_url = "http://broken/v1"
model = "m"
[chat.away]
base_url = "http://away/v1"
model = "m"
[chat.unlisted]
base_url = "http://unlisted/v1"
model = "m"
[embedding.vectors]
base_url = "http://good/v1"
model = "v"
dimension = 3
default = true
[embedding.keyless]
base_url = "http://keyless/v1"
model = "v"
dimension = 3
api_key_env = "ABSENT_KEY"
[embedding.refusing]
base_url = "http://refused/v1"
model = "v"
dimension = 3
api_key_env = "SOME_KEY"
[embedding.gone]
base_url = "http://away/v1"
model = "v"
dimension = 3
[rerank.order]
base_url = "http://broken/v1"
model = "r"
default = true
"""
STATUS = {"good": 200, "refused": 401, "broken": 502, "unlisted": 404}


def answer(request: httpx.Request) -> httpx.Response:
    if request.url.host == "away":
        raise httpx.ConnectError("no route")
    return httpx.Response(STATUS[request.url.host])


@pytest.fixture
def registry(tmp_path: Path) -> ModelRegistry:
    file = tmp_path / "models.toml"
    file.write_text(MODELS)
    return load_registry(file, {"SOME_KEY": "s3cret"})


async def test_each_model_says_why_it_can_not_be_used(registry: ModelRegistry) -> None:
    asked: list[httpx.Request] = []

    def note(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return answer(request)

    async with httpx.AsyncClient(transport=httpx.MockTransport(note)) as http:
        status = ModelStatus(registry, http, timeout=1, cache_seconds=30)
        views, again = await asyncio.gather(status.views(), status.views())
    assert {(view.kind, view.name): view.problem for view in views} == {
        ("chat", "good"): None,
        ("chat", "keyless"): "environment variable ABSENT_KEY is not set",
        ("chat", "refused"): "the endpoint refused the key",
        ("chat", "broken"): "the endpoint answers with status 502",
        ("chat", "away"): "the endpoint can't be reached (ConnectError)",
        ("chat", "unlisted"): None,
        ("embedding", "vectors"): None,
        ("embedding", "keyless"): "environment variable ABSENT_KEY is not set",
        ("embedding", "refusing"): "the endpoint refused the key",
        ("embedding", "gone"): "the endpoint can't be reached (ConnectError)",
        ("rerank", "order"): "the endpoint answers with status 502",
    }
    assert [view.usable for view in views] == [view.problem is None for view in views]
    assert again == views
    assert len(asked) == 9  # the second look was remembered, the models without a key were not asked
    assert {request.headers.get("authorization") for request in asked if request.url.host != "refused"} == {None}
    assert "s3cret" not in "".join(view.model_dump_json() for view in views)


@pytest.mark.parametrize("looked_before", [False, True])
async def test_only_what_lasts_keeps_a_model_from_being_chosen(registry: ModelRegistry, *, looked_before: bool) -> None:
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        status = ModelStatus(registry, http, timeout=1, cache_seconds=30)
        if looked_before:
            await status.views()
        problems = {name: await status.lasting_problem(model) for name, model in registry.embedding.items()}
    assert problems == {
        "vectors": None,
        "keyless": "environment variable ABSENT_KEY is not set",
        "refusing": "the endpoint refused the key",
        "gone": None,
    }


async def test_an_answer_holds_for_a_while(registry: ModelRegistry) -> None:
    asked = 0

    def answer(_request: httpx.Request) -> httpx.Response:
        nonlocal asked
        asked += 1
        return httpx.Response(200)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        status = ModelStatus(registry, http, timeout=1, cache_seconds=0)
        await status.views()
        await status.views()
    assert asked == 18
