"""From one embedding model of a knowledge base to another one, while the former serves.

A round walks through the documents, some at a time: what lacks a vector of the new generation is embedded through the cache, batch by
batch, and inserted. Documents that change meanwhile are caught up with in the next round. The cut-over is one transaction that looks,
while nobody can add chunks, whether nothing is missing. A generation that is given up is deleted by the same worker.

Each write is fenced like a document's. Whatever happens, the former generation serves on.
"""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol
from uuid import UUID

import structlog

from services.ingestion.chunks import Field
from services.ingestion.pipeline import Embedders, TextEmbedder, embed_in_batches
from shared.errors import CodedError, ErrorInfo, LeaseLost
from shared.failpoints import failpoint

log = structlog.get_logger()

_ROUND_PAUSE = 1.0


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


class GenerationStore(Protocol):
    """The generation's row and vectors.

    All raise LeaseLost when the lease is gone, and a retryable CodedError while the database is away.
    """

    async def count_chunks(self, job: ClaimedGeneration) -> int: ...
    async def next_shelf(self, job: ClaimedGeneration, after: UUID) -> Shelf: ...
    async def confirm(self, job: ClaimedGeneration) -> None: ...
    async def advance(self, job: ClaimedGeneration, done: int, total: int) -> None: ...
    async def add_vectors(self, job: ClaimedGeneration, shelf: Shelf, vectors: TextEmbedder) -> int: ...
    async def cut_over(self, job: ClaimedGeneration) -> bool: ...
    async def delete_some(self, job: ClaimedGeneration) -> bool: ...
    async def fail(self, job: ClaimedGeneration, error: ErrorInfo) -> None: ...
    async def delay(self, job: ClaimedGeneration, error: ErrorInfo) -> None: ...
    async def hand_back(self, job: ClaimedGeneration) -> None: ...


@dataclass
class _Progress:
    """How far a round has come, in chunks; shown every `every` seconds."""

    store: GenerationStore
    job: ClaimedGeneration
    total: int
    every: float
    done: int = 0
    _shown_at: float = field(default=float("-inf"))

    async def show(self, done: int) -> None:
        """Commits what is done now and then, and looks each time whether the work is still wanted."""
        if time.monotonic() - self._shown_at < self.every:
            await self.store.confirm(self.job)
            return
        self._shown_at = time.monotonic()
        await self.store.advance(self.job, min(done, self.total), self.total)


@dataclass(frozen=True, slots=True)
class Reembedding:
    """Works on claimed generations. `progress_every` is in seconds."""

    store: GenerationStore
    embedders: Embedders
    progress_every: float

    async def run(self, job: ClaimedGeneration) -> None:
        """Brings a generation to its end. Raises nothing but CancelledError, after handing it back."""
        try:
            await (self._build(job) if job.state == "building" else self._discard(job))
        except asyncio.CancelledError:
            await asyncio.shield(_conclude(self.store.hand_back(job)))
            raise
        except LeaseLost:
            log.warning("generation.lost")
        except CodedError as error:
            end = self.store.delay if error.retryable else self.store.fail
            await _conclude(end(job, error.info))
        except Exception:
            log.exception("generation.crashed")
            info = ErrorInfo(code="internal_error", message="the knowledge base could not be embedded again")
            await _conclude(self.store.delay(job, info))

    async def _build(self, job: ClaimedGeneration) -> None:
        embedder = self.embedders.embedder(job.model)
        while True:
            added = await self._round(job, embedder)
            failpoint("generation_built")
            if await self.store.cut_over(job):
                break
            if not added:
                await asyncio.sleep(_ROUND_PAUSE)  # a document that is being changed is all that is missing
        failpoint("generation_switched")
        log.info("generation.serves", model=job.model)

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
            await progress.show(done + incomplete * embedded // len(missing))

    async def _discard(self, job: ClaimedGeneration) -> None:
        while await self.store.delete_some(job):
            failpoint("generation_discarding")
        log.info("generation.discarded", model=job.model)


async def _conclude(ending: Awaitable[None]) -> None:
    try:
        await ending
    except LeaseLost:
        log.warning("generation.lost")
    except CodedError as error:
        log.warning("generation.abandoned", code=error.code)  # the lease runs out, and somebody claims it
