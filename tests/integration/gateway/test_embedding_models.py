"""The embedding model of a knowledge base: what the API says while it is changed, and the way back."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import httpx
import pytest

from shared.generations import lock_generations, serve_generation
from tests.integration.gateway.test_documents import add_chunks, set_state
from tests.support.api import Json, RunningGateway, create_knowledge_base, created, problem_of, upload

MODELS = """
[chat.none]
base_url = "http://127.0.0.1:9/v1"
model = "none"
default = true
"""
EMBEDDING = """
[embedding.{name}]
base_url = "http://127.0.0.1:9/v1"
model = "{name}"
dimension = {dimension}
"""


REFUSING = """
[embedding.refusing]
base_url = "{url}"
model = "refusing"
dimension = 2
[rerank.order]
base_url = "{url}"
model = "order"
default = true
"""


@pytest.fixture
async def refusing_endpoint() -> AsyncIterator[str]:
    """The address of an endpoint that takes nobody's key."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"


@pytest.fixture
async def gateway(database_url: str, tmp_path: Path, refusing_endpoint: str) -> AsyncIterator[RunningGateway]:
    """A gateway that knows three models that are away, and two that can't be used; nobody embeds anything."""
    models = tmp_path / "models.toml"
    entries = [EMBEDDING.format(name=name, dimension=n) for n, name in enumerate(("small", "middle", "large"), start=2)]
    entries += [EMBEDDING.format(name="keyless", dimension=2) + 'api_key_env = "CHATMIND_TEST_ABSENT_KEY"\n']
    entries.append(REFUSING.format(url=refusing_endpoint))
    models.write_text(MODELS + entries[0] + "default = true\n" + "".join(entries[1:]))
    running = RunningGateway(database_url, "amqp://127.0.0.1:1/", models_file=models)
    await running.start()
    yield running
    await running.stop()


@pytest.fixture
async def client(gateway: RunningGateway) -> httpx.AsyncClient:
    return await gateway.client()


@pytest.fixture
async def base(client: httpx.AsyncClient, gateway: RunningGateway) -> Json:
    """A knowledge base of two chunks."""
    base = await create_knowledge_base(client)
    document = await upload(client, base["id"])
    await add_chunks(gateway, document["id"], 2)
    await set_state(gateway, document["id"], "ready", current_version=1, chunk_count=2)
    await add_vectors(gateway, base, 1)
    return base


async def add_vectors(gateway: RunningGateway, base: Json, generation: int) -> None:
    """A vector of a generation for every chunk."""
    await gateway.parts.pool.execute(
        """INSERT INTO chunk_embedding (tenant_id, knowledge_base_id, chunk_id, field, generation, embedding)
           SELECT tenant_id, knowledge_base_id, id, 'body', $2, '[1,2]' FROM chunk WHERE knowledge_base_id = $1
           ON CONFLICT DO NOTHING""",
        UUID(base["id"]),
        generation,
    )


async def serve(gateway: RunningGateway, base: Json, generation: int) -> None:
    """As ingestion does when a generation is complete."""
    await add_vectors(gateway, base, generation)
    tenant_id = await gateway.parts.pool.fetchval("SELECT id FROM tenant")
    async with gateway.parts.pool.acquire() as connection, connection.transaction():
        await lock_generations(connection, tenant_id, UUID(base["id"]))
        await serve_generation(connection, tenant_id, UUID(base["id"]), generation)


def path_of(base: Json, rest: str = "") -> str:
    return f"/api/knowledge-bases/{base['id']}{rest}"


async def change(client: httpx.AsyncClient, base: Json, model: str) -> Json:
    body: Json = (await created(client.patch(path_of(base), json={"embedding_model": model})))["embedding"]
    return body


async def events_of(gateway: RunningGateway, base: Json) -> list[Json]:
    rows = await gateway.parts.pool.fetch(
        """SELECT payload::jsonb AS payload FROM knowledge_base_event
           WHERE knowledge_base_id = $1 AND type = 'knowledge_base.embedding' ORDER BY seq""",
        UUID(base["id"]),
    )
    return [row["payload"]["embedding"] for row in rows]


async def test_a_change_begins_beside_the_model_that_serves(
    client: httpx.AsyncClient, gateway: RunningGateway, base: Json
) -> None:
    untouched = {"model": "small", "generation": 1, "state": "ready", "next": None, "previous": None}
    assert base["embedding"] == untouched
    begun = await change(client, base, "middle")
    assert (begun["model"], begun["generation"], begun["state"], begun["previous"]) == ("small", 1, "building", None)
    following = begun["next"]
    assert (following["model"], following["generation"], following["state"]) == ("middle", 2, "building")
    assert (following["done"], following["total"], following["error"]) == (0, 0, None)
    shown = await created(client.get(path_of(base)))
    assert (shown["embedding_model"], shown["embedding"]) == ("small", begun)
    assert await change(client, base, "middle") == begun  # it goes on
    assert await events_of(gateway, base) == [begun]
    problem_of(await client.patch(path_of(base), json={"embedding_model": "none"}), 422, "unknown_model")


async def test_the_name_that_serves_or_going_back_calls_a_change_off(client: httpx.AsyncClient, base: Json) -> None:
    await change(client, base, "middle")
    assert await change(client, base, "small") == base["embedding"]
    await change(client, base, "middle")
    answer = await created(client.post(path_of(base, "/embedding/rollback")))
    assert answer["embedding"] == base["embedding"]
    problem_of(await client.post(path_of(base, "/embedding/rollback")), 409, "no_previous_embedding")


async def test_another_change_takes_the_place_of_the_first(client: httpx.AsyncClient, base: Json) -> None:
    await change(client, base, "middle")
    changed = await change(client, base, "large")
    assert (changed["next"]["model"], changed["next"]["generation"]) == ("large", 3)


async def test_going_back_is_at_once_while_the_previous_vectors_are_kept(
    client: httpx.AsyncClient, gateway: RunningGateway, base: Json
) -> None:
    await change(client, base, "middle")
    await serve(gateway, base, 2)
    switched = (await created(client.get(path_of(base))))["embedding"]
    assert (switched["model"], switched["generation"], switched["next"]) == ("middle", 2, None)
    assert (switched["previous"]["model"], switched["previous"]["generation"]) == ("small", 1)
    back = (await created(client.post(path_of(base, "/embedding/rollback"))))["embedding"]
    assert (back["model"], back["generation"], back["state"]) == ("small", 1, "ready")
    assert back["previous"]["model"] == "middle"
    forth = await change(client, base, "middle")
    assert (forth["model"], forth["generation"]) == ("middle", 2)
    assert (await client.delete(path_of(base, "/embedding/previous"))).status_code == 204
    problem_of(await client.delete(path_of(base, "/embedding/previous")), 404, "not_found")
    problem_of(await client.post(path_of(base, "/embedding/rollback")), 409, "no_previous_embedding")
    assert [event["generation"] for event in await events_of(gateway, base)] == [1, 1, 2, 2]


async def test_going_back_waits_for_vectors_that_are_missing(
    client: httpx.AsyncClient, gateway: RunningGateway, base: Json
) -> None:
    await change(client, base, "middle")
    await serve(gateway, base, 2)
    await gateway.parts.pool.execute(
        "DELETE FROM chunk_embedding WHERE generation = 1 AND chunk_id = (SELECT id FROM chunk WHERE ordinal = 0)"
    )
    back = (await created(client.post(path_of(base, "/embedding/rollback"))))["embedding"]
    assert (back["model"], back["state"], back["next"]["model"]) == ("middle", "building", "small")


async def test_a_failed_change_shows_why_and_is_tried_again(
    client: httpx.AsyncClient, gateway: RunningGateway, base: Json
) -> None:
    await change(client, base, "middle")
    error = {"code": "embedding_invalid", "message": "3 numbers, not 2"}
    await gateway.parts.pool.execute("UPDATE embedding_generation SET state = 'failed', error = $1", error)
    failed = (await created(client.get(path_of(base))))["embedding"]
    assert (failed["model"], failed["state"], failed["next"]["error"]) == ("small", "failed", error)
    again = await change(client, base, "middle")
    assert (again["state"], again["next"]["generation"], again["next"]["error"]) == ("building", 2, None)


async def test_a_base_without_documents_changes_at_once(client: httpx.AsyncClient) -> None:
    base = await create_knowledge_base(client)
    changed = await created(client.patch(path_of(base), json={"embedding_model": "large", "name": "Renamed"}))
    assert (changed["embedding_model"], changed["name"]) == ("large", "Renamed")
    assert (changed["embedding"]["state"], changed["embedding"]["previous"]) == ("ready", None)


async def test_other_tenants_find_nothing(gateway: RunningGateway, base: Json) -> None:
    stranger = await gateway.client("second")
    problem_of(await stranger.patch(path_of(base), json={"embedding_model": "middle"}), 404, "not_found")
    problem_of(await stranger.post(path_of(base, "/embedding/rollback")), 404, "not_found")
    problem_of(await stranger.delete(path_of(base, "/embedding/previous")), 404, "not_found")
    assert await gateway.parts.pool.fetchval("SELECT count(*) FROM embedding_generation") == 0


async def test_a_model_that_can_not_be_used_is_refused_and_one_that_is_away_is_not(
    client: httpx.AsyncClient, gateway: RunningGateway, base: Json
) -> None:
    before = await created(client.get(path_of(base)))
    for name, status, code in (
        ("keyless", 422, "unusable_model"),
        ("refusing", 422, "unusable_model"),
        ("unheard-of", 422, "unknown_model"),
    ):
        for answer in (
            await client.patch(path_of(base), json={"embedding_model": name, "name": "Changed"}),
            await client.post("/api/knowledge-bases", json={"name": "New", "embedding_model": name}),
        ):
            problem = problem_of(answer, status, code)
            assert [error["field"] for error in problem["errors"]] == ["embedding_model"]
    assert await created(client.get(path_of(base))) == before
    assert await gateway.parts.pool.fetchval("SELECT count(*) FROM knowledge_base") == 1
    assert (await change(client, base, "middle"))["state"] == "building", "nobody answers for any of the three"


async def test_the_name_of_the_serving_model_calls_a_change_off_whatever_its_state(
    client: httpx.AsyncClient, gateway: RunningGateway, base: Json
) -> None:
    await gateway.parts.pool.execute("UPDATE knowledge_base SET embedding_model = 'keyless'")
    await change(client, base, "middle")
    assert (await change(client, base, "keyless"))["state"] == "ready"


async def test_reranking_models_are_listed(client: httpx.AsyncClient) -> None:
    models = (await created(client.get("/api/models")))["items"]
    assert [model["name"] for model in models if model["kind"] == "rerank"] == ["order"]
