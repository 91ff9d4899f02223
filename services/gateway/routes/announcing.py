"""What is done after a change of documents was committed: hints to those who follow, a nudge to the relay, a line in the log."""

from collections.abc import Sequence
from uuid import UUID

import structlog

from services.gateway.deps import Parts
from services.gateway.store.documents import DocumentChange
from shared.contracts.hints import EventFrame
from shared.hints import stream_advanced
from shared.logging import log_context

log = structlog.get_logger()


def announce(parts: Parts, knowledge_base_id: UUID | None, changes: Sequence[DocumentChange]) -> None:
    """Documents that were queued one by one, if any was."""
    accepted = [change for change in changes if change.accepted]
    if knowledge_base_id is None or not accepted:
        return
    parts.relay.nudge()
    send_events(parts, knowledge_base_id, sorted((f for c in accepted for f in c.frames), key=lambda frame: frame.seq))
    for change in accepted:
        with log_context(document_id=change.document_id):
            log.info("document.accepted")


def announce_many(parts: Parts, documents: int) -> None:
    """Documents that were queued by the thousand, whose events were sent already."""
    if documents:
        parts.relay.nudge()
        log.info("documents.accepted", documents=documents)


def send_events(parts: Parts, knowledge_base_id: UUID, frames: Sequence[EventFrame]) -> None:
    if frames:
        parts.hints.send(stream_advanced(knowledge_base_id, frames))
