"""The service as a process of its own."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import pytest

from shared.contracts.questions import Hit, SearchKnowledge, SearchMode, SearchResult
from shared.rpc import QuestionFailed, RpcClient
from shared.service import background
from shared.topology import QUESTIONS
from tests.integration.retrieval.library import Base, Library
from tests.support.embedding_server import EmbeddingServer
from tests.support.stack import ServiceProcess, Stack
from tests.support.waiting import eventually

_MODELS = """
[chat.none]
base_url = "http://127.0.0.1:9/v1"
model = "none"
default = true

[embedding.tiny]
base_url = "{url}"
model = "tiny-1"
dimension = 8
query_prefix = "query: "
default = true
"""


@dataclass
class Retrieval:
    """A running service, its embedding server, and an asker."""

    process: ServiceProcess
    embeddings: EmbeddingServer
    rpc: RpcClient
    base: Base

    async def ask(self, query: str = "q", deadline: float = 20.0, mode: SearchMode = "hybrid") -> SearchResult:
        question = SearchKnowledge(scope=self.base.scope, query=query, mode=mode, request_id="request-1")
        return await self.rpc.ask(QUESTIONS, question, SearchResult, deadline=deadline)

    async def answers(self) -> bool:
        try:
            return len((await self.ask(deadline=2.0)).hits) == 2
        except QuestionFailed:
            return False


@pytest.fixture
async def embeddings() -> AsyncIterator[EmbeddingServer]:
    async with EmbeddingServer() as server:
        yield server


@pytest.fixture
def process(
    stack: Stack, database_url: str, rabbitmq_url: str, embeddings: EmbeddingServer, tmp_path: Path
) -> Iterator[ServiceProcess]:
    models_file = tmp_path / "models.toml"
    models_file.write_text(_MODELS.format(url=embeddings.url))
    environment = {
        "DATABASE_URL": database_url,
        "RABBITMQ_URL": rabbitmq_url,
        "CHATMIND_MODELS_FILE": str(models_file),
        "CHATMIND_EMBEDDING__RETRY_SECONDS": "0.5",
    }
    process = stack.start_service("services.retrieval.main", environment)
    yield process
    process.kill()


@pytest.fixture
async def retrieval(
    library: Library, process: ServiceProcess, rabbitmq_url: str, embeddings: EmbeddingServer
) -> AsyncIterator[Retrieval]:
    base = await library.add_base()
    await library.add_chunks(base, ["one", "two"])
    rpc = RpcClient(rabbitmq_url, "test")
    async with AsyncExitStack() as tasks:
        await tasks.enter_async_context(background([rpc.run]))
        process.wait_ready()
        yield Retrieval(process, embeddings, rpc, base)


async def test_it_answers_and_keeps_the_vectors_of_questions(retrieval: Retrieval) -> None:
    assert await eventually(retrieval.answers)
    for _ in range(3):
        await retrieval.ask("where is my order?")

    assert retrieval.embeddings.texts.count("query: where is my order?") == 1
    events = [json.loads(line) for line in retrieval.process.log_file.read_text().splitlines()]
    finished = [event for event in events if event["event"] == "search.finished"]
    assert finished[-1]["request_id"] == "request-1"
    assert finished[-1]["tenant_id"] == str(retrieval.base.tenant_id)
    assert finished[-1]["hits"] == 2
    assert finished[-1]["ms"].keys() == {"scope", "embed", "dense", "keyword", "load", "rerank"}


async def found_by_vectors(retrieval: Retrieval, text: str) -> tuple[Hit, ...]:
    found = await retrieval.ask(text)
    return () if found.degraded else found.hits


async def test_without_its_embedding_server_it_finds_by_words_and_says_so(retrieval: Retrieval) -> None:
    assert await eventually(retrieval.answers)
    await retrieval.embeddings.stop()

    found = await retrieval.ask("one and two", deadline=10)
    assert ({hit.content for hit in found.hits}, found.degraded) == ({"one", "two"}, ("embeddings_unavailable",))
    with pytest.raises(QuestionFailed) as failure:
        await retrieval.ask("new", mode="dense")
    assert (failure.value.code, failure.value.retryable) == ("embedding_unavailable", True)

    await retrieval.embeddings.start()
    hits = await eventually(partial(found_by_vectors, retrieval, "new"))  # once the model has rested
    assert len(hits) == 2


async def test_a_late_embedding_server_costs_part_of_the_deadline(retrieval: Retrieval) -> None:
    assert await eventually(retrieval.answers)
    retrieval.embeddings.hold_after(0)

    found = await retrieval.ask("one or two", deadline=8)

    assert (len(found.hits), found.degraded) == (2, ("embeddings_unavailable",))


async def test_a_broken_vector_is_a_refusal(retrieval: Retrieval) -> None:
    retrieval.embeddings.answer = "nan"

    async def code() -> str:
        with pytest.raises(QuestionFailed) as failure:
            await retrieval.ask("new", deadline=5, mode="dense")
        return failure.value.code

    assert await code() == "embedding_invalid"


async def test_it_ends_at_sigterm(retrieval: Retrieval) -> None:
    assert await eventually(retrieval.answers)

    assert retrieval.process.terminate(seconds=15) == 0


async def test_it_comes_back_with_the_broker(stack: Stack, retrieval: Retrieval) -> None:
    assert await eventually(retrieval.answers)
    stack.rabbitmq.stop()

    async def is_red() -> bool:
        return not retrieval.process.is_ready()

    try:
        assert await eventually(is_red, within=10)
    finally:
        stack.rabbitmq.start()
    assert await eventually(retrieval.answers, within=30)
    retrieval.process.wait_ready()


async def test_it_waits_for_a_broker_that_is_not_up_yet(stack: Stack, retrieval: Retrieval) -> None:
    retrieval.process.kill()
    stack.rabbitmq.stop()
    try:
        retrieval.process.start()
        await eventually(partial(_status, retrieval.process, "/healthz", 200), within=20)
        assert await _status(retrieval.process, "/readyz", 503)
    finally:
        stack.rabbitmq.start()
    retrieval.process.wait_ready(40)
    assert await eventually(retrieval.answers, within=20)


async def _status(process: ServiceProcess, path: str, expected: int) -> bool:
    async with httpx.AsyncClient(trust_env=False) as client:
        try:
            return (await client.get(f"{process.base_url}{path}")).status_code == expected
        except httpx.TransportError:
            assert process.process.poll() is None, process.log_tail()
            return False


async def test_a_question_outlives_the_process_that_took_it(retrieval: Retrieval) -> None:
    assert await eventually(retrieval.answers)
    retrieval.embeddings.hold_after(0)
    question = SearchKnowledge(scope=retrieval.base.scope, query="held")
    answer = asyncio.create_task(retrieval.rpc.ask(QUESTIONS, question, SearchResult, deadline=60, retries=0))
    await retrieval.embeddings.held.wait()

    retrieval.process.kill()
    retrieval.embeddings.release()
    retrieval.process.start()

    assert len((await answer).hits) == 2


async def test_twenty_questions_outlive_the_process_that_had_them(retrieval: Retrieval) -> None:
    """It is killed with all of them in its hands; another one answers each, within the deadline and by one retry at most."""
    assert await eventually(retrieval.answers)
    retrieval.embeddings.hold_after(0)
    asked = [asyncio.create_task(retrieval.ask(f"held {n}", deadline=60)) for n in range(20)]
    await retrieval.embeddings.held.wait()

    retrieval.process.kill()
    retrieval.embeddings.release()
    retrieval.process.start()

    assert [len(result.hits) for result in await asyncio.gather(*asked)] == [2] * 20


async def test_a_dead_service_costs_its_askers_their_deadline_and_late_questions_are_never_searched(
    retrieval: Retrieval,
) -> None:
    assert await eventually(retrieval.answers)
    retrieval.process.kill()
    started = time.monotonic()

    async def outcome(query: str) -> tuple[str, bool]:
        with pytest.raises(QuestionFailed) as failure:
            await retrieval.ask(query, deadline=2)
        return failure.value.code, failure.value.retryable

    outcomes = await asyncio.gather(*(outcome(f"late {n}") for n in range(20)))

    assert time.monotonic() - started < 4
    assert set(outcomes) == {("question_timeout", True)}
    retrieval.process.start()
    retrieval.process.wait_ready()
    assert await eventually(retrieval.answers)
    assert not [text for text in retrieval.embeddings.texts if "late" in text]


async def test_it_is_not_ready_without_its_database(stack: Stack, retrieval: Retrieval) -> None:
    stack.postgres.stop()
    try:
        assert await eventually(partial(_status, retrieval.process, "/readyz", 503), within=20)
        with pytest.raises(QuestionFailed) as failure:
            await retrieval.ask("new")
        assert (failure.value.code, failure.value.retryable) == ("database_unavailable", True)
    finally:
        stack.postgres.start()
    assert await eventually(retrieval.answers, within=20)
