"""Claimed documents and generations as jobs."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import structlog

from services.ingestion.courtesy import Courtesy
from services.ingestion.generation_store import GenerationStore
from services.ingestion.pipeline import ClaimedDocument, Ingestion
from services.ingestion.reembedding import ClaimedGeneration, Reembedding
from shared.failpoints import failpoint
from shared.leases import LeaseKeeper
from shared.logging import log_context

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Worker:
    """Works on one claimed document after another, or on several at once."""

    keeper: LeaseKeeper
    ingestion: Ingestion
    courtesy: Courtesy

    async def work(self, document: ClaimedDocument) -> None:
        """Sees a document through under its lease, to its end or until it is handed back."""
        with log_context(document_id=document.id, tenant_id=document.tenant_id, request_id=document.request_id):
            waited = round(document.waited, 3)
            log.info("document.claimed", attempt=document.attempts, epoch=document.epoch, waited=waited)
            failpoint("document_claimed")
            began = time.monotonic()
            await self.keeper.hold(document.id, self.ingestion.run(document))
        await self.courtesy.pause(time.monotonic() - began)


@dataclass(frozen=True, slots=True)
class GenerationWorker:
    """Claims generations of knowledge bases' embeddings and works on them."""

    keeper: LeaseKeeper
    store: GenerationStore
    reembedding: Reembedding

    async def claim(self, limit: int, without: Sequence[UUID]) -> Sequence[ClaimedGeneration]:
        """Takes up to `limit` for a lease, none of the tenants `without`."""
        return await self.store.claim(limit, without, self.keeper.held())

    async def work(self, job: ClaimedGeneration) -> None:
        """Sees a generation through under its lease, to its end or until it is handed back."""
        context = {"knowledge_base_id": job.knowledge_base_id, "tenant_id": job.tenant_id, "generation": job.generation}
        with log_context(request_id=job.request_id, **context):
            log.info("generation.claimed", state=job.state, attempt=job.attempts, epoch=job.epoch)
            failpoint("generation_claimed")
            await self.keeper.hold(job.id, self.reembedding.run(job))
