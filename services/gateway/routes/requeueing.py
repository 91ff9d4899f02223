"""Documents that are queued again: those that failed, and those that are to be read with the settings of now."""

from uuid import UUID

from fastapi import APIRouter, Response

from services.gateway.answers import JsonText, StrictJsonRoute
from services.gateway.cursors import LOWEST_ID, decode_id, encode_id
from services.gateway.deps import Call, CallDep, IdempotencyKey
from services.gateway.routes.announcing import announce, announce_many, send_events
from services.gateway.schemas.knowledge_bases import (
    Document,
    ReprocessedDocuments,
    ReprocessRequest,
    RetriedDocuments,
)
from services.gateway.store import documents as store
from services.gateway.store import reprocessing
from services.gateway.store.idempotency import create_once, earlier_answer
from services.gateway.store.knowledge_bases import require_knowledge_base
from shared.db.pool import AnyConnection

router = APIRouter(prefix="/api", tags=["documents"], route_class=StrictJsonRoute)


@router.post(
    "/knowledge-bases/{knowledge_base_id}/retry-failed",
    status_code=202,
    response_model=RetriedDocuments,
    responses={404: {}},
)
async def retry_failed(knowledge_base_id: UUID, call: CallDep) -> Response:
    """Queues the failed documents of a knowledge base again, some thousands of them at once."""
    parts, retried = call.parts, 0
    async with parts.pool.acquire() as connection:
        await require_knowledge_base(connection, call.tenant_id, knowledge_base_id)
        wanted = parts.settings.limits.retries
        welcome = await parts.admission.documents_welcome(connection, call.tenant_id, wanted)
        place = store.Place(call.tenant_id, knowledge_base_id, call.request_id)
        while retried < welcome:
            limit = min(store.QUEUED_AT_ONCE, welcome - retried)
            async with connection.transaction():
                frames = await store.requeue_failed(connection, place, limit)
            retried += len(frames)
            send_events(parts, knowledge_base_id, frames)
            if len(frames) < limit:
                break
        more = retried == welcome and await store.has_failed(connection, place)
    announce_many(parts, retried)
    return JsonText(RetriedDocuments(retried=retried, more=more).model_dump_json(), 202)


@router.post("/documents/{document_id}/retry", status_code=202, response_model=Document, responses={404: {}})
async def retry_document(document_id: UUID, call: CallDep) -> Response:
    """Queues a failed document again; any other stays as it is."""
    async with call.parts.pool.acquire() as connection, connection.transaction():
        await call.parts.admission.require_room(connection, call.tenant_id, "document")
        change = await store.requeue_if_failed(connection, call.tenant_id, document_id, call.request_id)
        body = await store.read_document(connection, call.tenant_id, document_id)
    announce(call.parts, change.knowledge_base_id, [change])
    return JsonText(body, 202)


@router.post(
    "/documents/{document_id}/reprocess", status_code=202, response_model=Document, responses={404: {}, 409: {}}
)
async def reprocess_document(document_id: UUID, call: CallDep, idempotency_key: IdempotencyKey = None) -> Response:
    """Reads a document again from its stored bytes, with the settings that its knowledge base has now.

    It becomes a new version; the old one is found until the new one is ready. One that is being worked on begins anew, one that waits
    is left as it is. Texts that stay the same are not embedded again.
    """
    changes: list[store.DocumentChange] = []
    async with call.parts.pool.acquire() as connection, connection.transaction():

        async def create() -> str:
            await call.parts.admission.require_room(connection, call.tenant_id, "document")
            arguments = (call.tenant_id, document_id, call.request_id)
            changes.append(await reprocessing.reprocess_document(connection, *arguments))
            return await store.read_document(connection, call.tenant_id, document_id)

        answer = await create_once(connection, call.idempotent(idempotency_key, b""), 202, create)
    for change in changes:
        announce(call.parts, change.knowledge_base_id, [change])
    return JsonText(answer, 202)


@router.post(
    "/knowledge-bases/{knowledge_base_id}/reprocess",
    status_code=202,
    response_model=ReprocessedDocuments,
    responses={404: {}, 409: {}, 413: {}},
)
async def reprocess_documents(
    knowledge_base_id: UUID,
    call: CallDep,
    body: ReprocessRequest | None = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Reads documents of a knowledge base again, all or some, each as `POST /api/documents/{id}/reprocess` does; thousands at once."""
    wanted = body or ReprocessRequest()
    request = call.idempotent(idempotency_key, wanted)
    place = store.Place(call.tenant_id, knowledge_base_id, call.request_id)
    async with call.parts.pool.acquire() as connection:
        await require_knowledge_base(connection, call.tenant_id, knowledge_base_id)
        if request is not None and (answer := await earlier_answer(connection, request)) is not None:
            return JsonText(answer, 202)
        done = await _reprocess(call, connection, place, wanted)

        async def create() -> str:
            return done.model_dump_json()

        # The key comes last: no transaction is to hold thousands of documents. Whoever is cut off before it asks again, which does no harm.
        async with connection.transaction():
            answer = await create_once(connection, request, 202, create)
    announce_many(call.parts, done.reprocessed)
    return JsonText(answer, 202)


async def _reprocess(
    call: Call, connection: AnyConnection, place: store.Place, wanted: ReprocessRequest
) -> ReprocessedDocuments:
    """Queues as many as one request may, each thousand in a transaction of its own."""
    parts, only, queued = call.parts, wanted.document_ids, 0
    after: UUID | None = decode_id(wanted.cursor) if wanted.cursor is not None else LOWEST_ID
    left = await parts.admission.documents_welcome(connection, call.tenant_id, parts.settings.limits.retries)
    while after is not None and left > 0:
        limit = min(store.QUEUED_AT_ONCE, left)
        async with connection.transaction():
            part = await reprocessing.reprocess_documents(connection, place, after, limit, only)
        send_events(parts, place.knowledge_base_id, part.frames)
        queued, left, after = queued + len(part.frames), left - limit, part.last
    more = after is not None and bool(await reprocessing.next_documents(connection, place, after, 1, only))
    return ReprocessedDocuments(
        reprocessed=queued,
        more=more,
        next_cursor=encode_id(after) if more and after is not None else None,
        missing=await reprocessing.find_missing(connection, place, only) if only is not None else [],
    )
