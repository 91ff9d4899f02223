"""From one embedding model of a knowledge base to another one, while the former serves.

A round walks through the documents, some at a time: what lacks a vector of the new generation is embedded through the cache, batch by
batch, and inserted. Documents that change meanwhile are caught up with in the next round. A large base waits for the index of the new
generation, so that its first searches find one. The cut-over is one transaction that looks, while nobody can add chunks, whether nothing is
missing. A generation that is given up is deleted by the same worker.

Each write is fenced like a document's. Whatever happens, the former generation serves on.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol
from uuid import UUID

import structlog

from services.ingestion.chunks import Field
from services.ingestion.endings import Endings, see_through
from services.ingestion.pipeline import Embedders, TextEmbedder, embed_in_batches
from shared.failpoints import failpoint

log = structlog.get_logger()

_ROUND_PAUSE = 1.0
_INDEX_PAUSE = 1.0

IndexState = Literal["unneeded", "building", "ready", "failed"]


@dataclass(frozen=True, slots=True)
class ClaimedGeneration:
    """A generation to build beside the one that serves, or to discard, and the lease on it."""

    tenant_id: UUID
    knowledge_base_id: UUID
    generation: int
    id: UUID
    model: str
    state: Literal["building", "discarding"]
    epoch: int
    attempts: int
    request_id: str | None
    serving: int


@dataclass(frozen=True, slots=True)
class MissingVector:
    """What a chunk lacks in the new generation."""

    chunk_id: UUID
    field: Field
    text: str


@dataclass(frozen=True, slots=True)
class Shelf:
    """Documents next to each other in the order of their ids, with their number of chunks and what these lack."""

    document_ids: Sequence[UUID]
    chunks: int
    missing: Sequence[MissingVector]


class GenerationStore(Endings[ClaimedGeneration], Protocol):
    """The generation's row and vectors. All raise what those that end the lease do."""

    async def count_chunks(self, job: ClaimedGeneration) -> int: ...
    async def next_shelf(self, job: ClaimedGeneration, after: UUID) -> Shelf: ...
    async def confirm(self, job: ClaimedGeneration) -> None: ...
    async def advance(self, job: ClaimedGeneration, done: int, total: int, *, fresh: bool) -> None: ...
    async def index_state(self, job: ClaimedGeneration) -> IndexState: ...
    async def add_vectors(self, job: ClaimedGeneration, shelf: Shelf, vectors: TextEmbedder) -> int: ...
    async def cut_over(self, job: ClaimedGeneration) -> bool: ...
    async def delete_some(self, job: ClaimedGeneration) -> bool: ...


@dataclass
class _Progress:
    """How far a round has come, in chunks; shown every `every` seconds."""

    store: GenerationStore
    job: ClaimedGeneration
    total: int
    every: float
    done: int = 0
    _fresh: bool = False
    _shown_at: float = field(default=float("-inf"))

    async def show(self, done: int, *, fresh: bool = False) -> None:
        """Commits what is done now and then, the first that is `fresh` at once; looks each time whether the work is still wanted."""
        if time.monotonic() - self._shown_at < self.every and self._fresh >= fresh:
            await self.store.confirm(self.job)
            return
        self._shown_at = time.monotonic()
        self._fresh = self._fresh or fresh
        await self.store.advance(self.job, min(done, self.total), self.total, fresh=self._fresh)


@dataclass(frozen=True, slots=True)
class Reembedding:
    """Works on claimed generations. In seconds: `progress_every`, and how long it waits for an index."""

    store: GenerationStore
    embedders: Embedders
    progress_every: float
    index_seconds: float

    async def run(self, job: ClaimedGeneration) -> None:
        """Brings a generation to its end. Raises nothing but CancelledError, after handing it back."""
        work = self._build(job) if job.state == "building" else self._discard(job)
        await see_through(work, job, self.store, crash="the knowledge base could not be embedded again")

    async def _build(self, job: ClaimedGeneration) -> None:
        embedder = self.embedders.embedder(job.model)
        waits_until = float("inf")
        while True:
            added = await self._round(job, embedder)
            failpoint("generation_built")
            waits_until = min(waits_until, time.monotonic() + self.index_seconds)
            index = await self._index(job, waits_until)
            if await self.store.cut_over(job):
                break
            if not added:
                await asyncio.sleep(_ROUND_PAUSE)  # a document that is being changed is all that is missing
        failpoint("generation_switched")
        log.info("generation.serves", model=job.model, index=index)
        if index in ("building", "failed"):
            log.warning("generation.not_indexed", state=index)  # searches read all of its vectors until it is

    async def _index(self, job: ClaimedGeneration, waits_until: float) -> IndexState:
        """Waits for the index of a large base, up to a moment of time.monotonic(). Without it searches are slower, and right."""
        began, waits = time.monotonic(), 0
        while (state := await self.store.index_state(job)) == "building" and time.monotonic() < waits_until:
            await self.store.confirm(job)
            await asyncio.sleep(_INDEX_PAUSE)
            waits += 1
        if waits:
            log.info("generation.waited_for_index", state=state, seconds=round(time.monotonic() - began, 1))
        return state

    async def _round(self, job: ClaimedGeneration, embedder: TextEmbedder) -> int:
        """Completes what there is; the number of vectors that were missing and are there now."""
        progress = _Progress(self.store, job, await self.store.count_chunks(job), self.progress_every)
        added, after = 0, UUID(int=0)
        while (shelf := await self.store.next_shelf(job, after)).document_ids:
            await self._embed(shelf, embedder, progress)
            added += await self.store.add_vectors(job, shelf, embedder)
            progress.done += shelf.chunks
            after = shelf.document_ids[-1]
        return added

    async def _embed(self, shelf: Shelf, embedder: TextEmbedder, progress: _Progress) -> None:
        """Brings the vectors of what is missing into the cache."""
        missing = await embedder.missing(list(dict.fromkeys(vector.text for vector in shelf.missing)))
        incomplete = len({vector.chunk_id for vector in shelf.missing}) if missing else 0
        done = progress.done + shelf.chunks - incomplete
        await progress.show(done)
        async for embedded in embed_in_batches(embedder, missing):
            failpoint("generation_embedded")
            await progress.show(done + incomplete * embedded // len(missing), fresh=True)

    async def _discard(self, job: ClaimedGeneration) -> None:
        while await self.store.delete_some(job):
            failpoint("generation_discarding")
        log.info("generation.discarded", model=job.model)
