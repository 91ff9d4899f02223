"""Wake-ups for documents: claim in the database, start a job, acknowledge."""

import asyncio
from dataclasses import dataclass
from functools import partial

import structlog
from faststream import AckPolicy, Context
from faststream.exceptions import NackMessage, RejectMessage
from faststream.rabbit import RabbitRouter
from faststream.rabbit.annotations import RabbitMessage
from pydantic import ValidationError

from services.ingestion.pipeline import ClaimedDocument, Ingestion
from services.ingestion.store import DatabaseAway, DocumentStore
from shared.contracts.commands import IngestDocument
from shared.failpoints import failpoint
from shared.jobs import Draining, JobSlots
from shared.leases import LeaseKeeper
from shared.logging import log_context
from shared.topology import DOCUMENTS, consumer_channel, wake_up_queue

log = structlog.get_logger()

router = RabbitRouter()


@dataclass(frozen=True, slots=True)
class Intake:
    """What a wake-up needs. `slot_wait` is in seconds."""

    slots: JobSlots
    keeper: LeaseKeeper
    store: DocumentStore
    ingestion: Ingestion
    slot_wait: float


# One unacknowledged message: it waits here for a slot, all others wait where any replica can take them.
@router.subscriber(
    wake_up_queue(DOCUMENTS),
    channel=consumer_channel(1),
    ack_policy=AckPolicy.REJECT_ON_ERROR,
    no_reply=True,
)
async def ingest_document(message: RabbitMessage, intake: Intake = Context()) -> None:
    """Claims the document and leaves the work to a job. What comes to nothing is acknowledged too: the row tells what is to be done."""
    command = _read(message.body)
    try:
        await intake.slots.take(intake.slot_wait)
    except (TimeoutError, Draining):
        raise NackMessage(requeue=True) from None
    claimed = asyncio.Event()
    # The claim belongs to the job: a lost broker connection cancels this function, but no claim without its job.
    intake.slots.start(partial(_work, intake, command, claimed))
    await claimed.wait()


def _read(body: bytes) -> IngestDocument:
    """Sends what can't be read to the dead letters."""
    try:
        return IngestDocument.model_validate_json(body)
    except ValidationError as error:
        fields = [
            ".".join(map(str, problem["loc"])) for problem in error.errors(include_url=False, include_input=False)
        ]
        log.error("message.rejected", queue=DOCUMENTS, fields=fields)
        raise RejectMessage(requeue=False) from None


async def _work(intake: Intake, command: IngestDocument, claimed: asyncio.Event) -> None:
    with log_context(document_id=command.document_id, tenant_id=command.tenant_id, request_id=command.request_id):
        try:
            document = await _claim(intake.store, command)
        finally:
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
