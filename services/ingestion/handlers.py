"""Wake-ups for documents: claim in the database, start a job, acknowledge."""

import asyncio
from dataclasses import dataclass
from functools import partial

import structlog
from faststream.rabbit import RabbitBroker

from services.ingestion.pipeline import ClaimedDocument, Ingestion
from services.ingestion.store import DatabaseAway, DocumentStore
from shared.contracts.commands import IngestDocument
from shared.failpoints import failpoint
from shared.jobs import JobSlots
from shared.leases import LeaseKeeper
from shared.logging import log_context
from shared.topology import DOCUMENTS
from shared.wake_ups import read_command, start_in_slot, subscribe_to_wake_ups

log = structlog.get_logger()

_PREFETCH = 1


@dataclass(frozen=True, slots=True)
class Intake:
    """What a wake-up needs. `slot_wait` is in seconds."""

    slots: JobSlots
    keeper: LeaseKeeper
    store: DocumentStore
    ingestion: Ingestion
    slot_wait: float


def subscribe(broker: RabbitBroker, intake: Intake) -> None:
    """Registers the handler of wake-ups for documents."""
    subscribe_to_wake_ups(broker, DOCUMENTS, _PREFETCH, partial(ingest_document, intake))


async def ingest_document(intake: Intake, body: bytes) -> None:
    """Claims the document and leaves the work to a job. What comes to nothing is acknowledged too: the row tells what is to be done."""
    command = read_command(body, IngestDocument)
    await start_in_slot(intake.slots, intake.slot_wait, partial(_work, intake, command))


async def _work(intake: Intake, command: IngestDocument, claimed: asyncio.Event) -> None:
    with log_context(document_id=command.document_id, tenant_id=command.tenant_id, request_id=command.request_id):
        document = await _claim(intake.store, command)
        claimed.set()
        if document is not None:
            failpoint("document_claimed")
            await intake.keeper.hold(document.id, intake.ingestion.run(document))


async def _claim(store: DocumentStore, command: IngestDocument) -> ClaimedDocument | None:
    try:
        document = await store.claim(command.tenant_id, command.document_id)
    except DatabaseAway as error:
        log.warning("document.not_claimed", cause=error.message)  # a sweeper wakes it again
        return None
    if document is None:
        log.debug("document.nothing_to_do")
    else:
        log.info("document.claimed", attempt=document.attempts, epoch=document.epoch, waited=round(document.waited, 3))
    return document
