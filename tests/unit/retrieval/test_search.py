"""The order of a search's stages and its ways out, on a store in memory."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

import numpy as np
import pytest

from services.retrieval.ranking import DenseMatch, KeywordMatch, Ranked
from services.retrieval.search import ChunksChanging, KnowledgeBase, Scope, Search, Target, Vector
from services.retrieval.settings import SearchSettings
from shared.contracts.questions import Hit, RunScope, SearchKnowledge, SearchMode, TenantScope

TENANT = UUID(int=1)
BASE = KnowledgeBase(UUID(int=2), "tiny")


def hit(number: int) -> Hit:
    return Hit(
        chunk_id=UUID(int=number),
        document_id=UUID(int=9),
        knowledge_base_id=BASE.id,
        filename="handbook.md",
        version=1,
        ordinal=number,
        title="",
        heading_path=(),
        content=str(number),
        char_start=0,
        char_end=1,
        score=0.5,
    )


@dataclass
class MemoryStore:
    """Chunks 1..n, the nearest first; the first `swaps` loads find that a document was replaced by chunks with new ids."""

    chunks: int = 20
    swaps: int = 0
    calls: list[tuple[str, int]] = field(default_factory=list)

    async def run_scope(self, run_id: UUID) -> Scope | None:
        return Scope(TENANT, (BASE,))

    async def tenant_scope(self, tenant_id: UUID, knowledge_base_id: UUID) -> Scope | None:
        return Scope(TENANT, (BASE,))

    @asynccontextmanager
    async def reader(self) -> AsyncIterator["MemoryStore"]:
        yield self

    async def nearest(self, target: Target, limit: int) -> list[DenseMatch]:
        self.calls.append(("nearest", limit))
        return [DenseMatch(UUID(int=n), 1 / n) for n in range(1, self.chunks + 1)][:limit]

    async def matching(self, target: Target, limit: int) -> list[KeywordMatch]:
        self.calls.append(("matching", limit))
        return []

    async def load(self, tenant_id: UUID, ranked: Sequence[Ranked]) -> Mapping[UUID, Hit]:
        self.calls.append(("load", len(ranked)))
        found = [hit(one.chunk_id.int) for one in ranked]
        if self.swaps:
            self.swaps -= 1
            found.pop()
        return {one.chunk_id: one for one in found}


class ConstantEmbedder:
    """One vector for everything."""

    async def embed(self, model: str, query: str) -> Vector:
        return np.ones(8, np.float32)


def search(store: MemoryStore) -> Search:
    return Search(store, ConstantEmbedder(), SearchSettings())


def question(mode: SearchMode = "hybrid", query: str = "refund", top_k: int = 5) -> SearchKnowledge:
    scope = TenantScope(tenant_id=TENANT, knowledge_base_id=BASE.id)
    return SearchKnowledge(scope=scope, query=query, mode=mode, top_k=top_k)


@pytest.mark.parametrize(
    ("mode", "top_k", "expected"),
    [
        ("dense", 5, [("nearest", 5), ("load", 5)]),
        ("keyword", 5, [("matching", 50), ("load", 0)]),
        ("hybrid", 5, [("nearest", 50), ("matching", 50), ("load", 5)]),
        ("hybrid", 20, [("nearest", 80), ("matching", 80), ("load", 20)]),
    ],
)
async def test_each_mode_looks_only_where_it_has_to(
    mode: SearchMode, top_k: int, expected: list[tuple[str, int]]
) -> None:
    store = MemoryStore()
    await search(store).answer(question(mode, top_k=top_k))

    assert store.calls == expected


async def test_a_question_without_terms_skips_the_keyword_search() -> None:
    store = MemoryStore()
    found = await search(store).answer(question(query="?!"))

    assert [name for name, _ in store.calls] == ["nearest", "load"]
    assert len(found.hits) == 5


@pytest.mark.parametrize("swaps", [1, 2])
async def test_a_search_starts_again_when_chunks_were_replaced_under_it(swaps: int) -> None:
    store = MemoryStore(swaps=swaps)
    found = await search(store).answer(question())

    assert [hit.content for hit in found.hits] == ["1", "2", "3", "4", "5"]
    assert len([name for name, _ in store.calls if name == "load"]) == swaps + 1


async def test_a_search_gives_up_when_chunks_never_stop_changing() -> None:
    with pytest.raises(ChunksChanging) as failure:
        await search(MemoryStore(swaps=99)).answer(question())

    assert failure.value.retryable


async def test_asking_for_nothing_that_was_granted_reads_nothing() -> None:
    store = MemoryStore()
    scope = RunScope(run_id=UUID(int=7), knowledge_base_ids=(UUID(int=8),))

    assert (await search(store).answer(SearchKnowledge(scope=scope, query="refund"))).hits == ()
    assert store.calls == []
