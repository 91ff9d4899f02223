"""Claimed documents as jobs."""

import time
from dataclasses import dataclass

import structlog

from services.ingestion.courtesy import Courtesy
from services.ingestion.pipeline import ClaimedDocument, Ingestion
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
