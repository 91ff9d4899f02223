"""Searches without a database: chunks in memory, a constant embedder."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

import numpy as np

from services.retrieval.ports import KnowledgeBase, Parent, Passage, Scan, Scope, Target, Vector
from services.retrieval.ranking import DenseMatch, KeywordMatch
from shared.contracts.questions import SearchKnowledge, TenantScope
from shared.errors import CodedError

TENANT = UUID(int=1)
BASE = KnowledgeBase(UUID(int=2), "tiny")


def passage(number: int, content: str = "", parent: int | None = None) -> Passage:
    """A chunk that stands at offset 1000 of its document, on its fourth page."""
    content = content or str(number)
    return Passage(
        chunk_id=UUID(int=number),
        document_id=UUID(int=9),
        knowledge_base_id=BASE.id,
        filename="handbook.md",
        version=1,
        ordinal=number,
        title="",
        heading_path=(),
        content=content,
        char_start=1000,
        char_end=1000 + len(content),
        parent_id=None if parent is None else UUID(int=parent),
        page_first=4,
        page_last=4,
    )


def question(**options: object) -> SearchKnowledge:
    scope = TenantScope(tenant_id=TENANT, knowledge_base_id=BASE.id)
    return SearchKnowledge.model_validate({"scope": scope, "query": "refund", **options})


@dataclass
class MemoryStore:
    """Chunks 1..n, the nearest first (or all as near as `cosine`); keyword search finds those that hold a term, in the same order.

    The first `swaps` loads find that the best chunk's document was replaced by chunks with new ids. With `family`, so many chunks in a
    row have one parent.
    """

    chunks: int = 20
    swaps: int = 0
    family: int = 0
    cosine: float | None = None
    contents: Mapping[int, str] = field(default_factory=dict)
    calls: list[tuple[str, int]] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    open_readers: int = 0

    async def run_scope(self, run_id: UUID) -> Scope | None:
        return Scope(TENANT, (BASE,))

    async def tenant_scope(self, tenant_id: UUID, knowledge_base_id: UUID) -> Scope | None:
        return Scope(TENANT, (BASE,))

    @asynccontextmanager
    async def reader(self) -> AsyncIterator["MemoryStore"]:
        self.open_readers += 1
        try:
            yield self
        finally:
            self.open_readers -= 1

    async def nearest(self, target: Target, limit: int) -> list[DenseMatch]:
        self.calls.append(("nearest", limit))
        self.targets.append(target)
        return [DenseMatch(UUID(int=n), self.cosine or 1 / n) for n in range(1, self.chunks + 1)][:limit]

    async def matching(self, target: Target, limit: int) -> list[KeywordMatch]:
        self.calls.append(("matching", limit))
        self.targets.append(target)
        known = target.vectors is not None
        held = [n for n, content in self.contents.items() if any(term in content for term in target.terms)]
        return [
            KeywordMatch(UUID(int=n), self.cosine or 1 / n, (self.cosine or 1 / n) if known else None) for n in held
        ][:limit]

    async def load(self, tenant_id: UUID, chunk_ids: Sequence[UUID]) -> Mapping[UUID, Passage]:
        self.calls.append(("load", len(chunk_ids)))
        found = [self._passage(chunk_id.int) for chunk_id in chunk_ids]
        if self.swaps:
            self.swaps -= 1
            found.pop(0)
        return {one.chunk_id: one for one in found}

    async def load_parents(self, tenant_id: UUID, parent_ids: Sequence[UUID]) -> Mapping[UUID, Parent]:
        self.calls.append(("load_parents", len(parent_ids)))
        return {
            parent_id: Parent(
                parent_id, "Family", ("Family",), f"family {parent_id.int}", 900, 2000, page_first=3, page_last=5
            )
            for parent_id in parent_ids
        }

    @property
    def term_weights(self) -> Mapping[str, float]:
        return {}

    @property
    def scans(self) -> Mapping[UUID, Scan]:
        return {BASE.id: "exact"}

    def _passage(self, number: int) -> Passage:
        parent = 10_000 + (number - 1) // self.family if self.family else None
        return passage(number, self.contents.get(number, ""), parent)


@dataclass
class ConstantEmbedder:
    """One vector for everything, or a failure, or none ever."""

    failure: CodedError | None = None
    hangs: bool = False
    asked: list[Sequence[str]] = field(default_factory=list)

    async def embed(self, model: str, queries: Sequence[str]) -> Sequence[Vector]:
        self.asked.append(list(queries))
        if self.hangs:
            await asyncio.Event().wait()
        if self.failure:
            raise self.failure
        return [np.ones(8, np.float32) for _ in queries]
