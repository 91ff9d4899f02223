"""Documents of knowledge bases: upload, progress, labels, replacement, chunks."""

from typing import Annotated, Any
from uuid import UUID

import structlog
from fastapi import APIRouter, Query, Request, Response

from services.gateway.answers import JsonText, page_by_id, page_by_number
from services.gateway.cursors import HIGHEST_ID, decode_id, decode_number
from services.gateway.deps import CallDep, Cursor, IdempotencyKey, Limit
from services.gateway.routes.announcing import announce, send_events
from services.gateway.schemas.knowledge_bases import (
    Chunk,
    Document,
    DocumentState,
    UploadedDocuments,
)
from services.gateway.schemas.labels import DocumentPatch, Labels, Tags
from services.gateway.schemas.lists import ItemList
from services.gateway.store import documents as store
from services.gateway.store.idempotency import create_once
from services.gateway.store.knowledge_bases import require_knowledge_base
from services.gateway.uploads import checked_filename, received_content, received_files
from shared.contracts.media import SUPPORTED_MEDIA_TYPES
from shared.logging import log_context

router = APIRouter(prefix="/api", tags=["documents"])

log = structlog.get_logger()


def _multipart(field: str, schema: dict[str, Any], **others: dict[str, Any]) -> dict[str, Any]:
    properties = {field: schema, **others}
    body = {"type": "object", "properties": properties, "required": [field], "additionalProperties": False}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": body}}}}


def _content() -> dict[str, Any]:
    extra = _multipart("file", _FILE)
    extra["requestBody"]["content"] |= {media_type: {"schema": _FILE} for media_type in SUPPORTED_MEDIA_TYPES}
    return extra


_STORING = "storing"  # the one thing that uploads take turns at
_FILE = {"type": "string", "format": "binary", "minLength": 1}
_FILES = {"type": "array", "items": _FILE, "minItems": 1}
_TAGS = {
    "type": "array",
    "items": {"type": "string"},
    "description": "of all files; several with commas between them, or several fields",
}
_DATE = {"type": "string", "format": "date", "description": "of all files"}


@router.post(
    "/knowledge-bases/{knowledge_base_id}/documents",
    status_code=202,
    response_model=UploadedDocuments,
    responses={400: {}, 404: {}, 409: {}, 413: {}, 415: {}},
    openapi_extra=_multipart("files", _FILES, tags=_TAGS, date=_DATE),
)
async def upload_documents(
    knowledge_base_id: UUID, request: Request, call: CallDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """Takes files in and queues them, with tags and a date for all of them.

    Bytes that the knowledge base has already answer with the document that is there, as it is: its name and labels can be changed by PATCH.
    """
    async with call.parts.pool.acquire() as connection:
        await require_knowledge_base(connection, call.tenant_id, knowledge_base_id)
        if idempotency_key is None:  # what was accepted before is answered again, however full it is now
            await call.parts.admission.require_room(connection, call.tenant_id, "document")
    place = store.Place(call.tenant_id, knowledge_base_id, call.request_id)
    changes: list[store.DocumentChange] = []
    async with received_files(request, call.parts.settings.limits) as form:
        uploads = form.files
        identity = b"\n".join(file.sha256 + file.filename.encode() for file in uploads)
        if form.labels != Labels():
            identity += b"\n\n" + form.labels.model_dump_json().encode()
        async with (
            call.parts.storing_turns.at(_STORING),
            call.parts.pool.acquire() as connection,
            connection.transaction(),
        ):

            async def create() -> str:
                await call.parts.admission.require_room(connection, call.tenant_id, "document", len(uploads))
                changes.extend(await store.add_documents(connection, place, uploads, form.labels))
                bodies = [await store.read_document(connection, call.tenant_id, c.document_id) for c in changes]
                return f'{{"items":[{",".join(bodies)}]}}'

            answer = await create_once(connection, call.idempotent(idempotency_key, identity), 202, create)
    announce(call.parts, knowledge_base_id, changes)
    return JsonText(answer, 202)


@router.get("/knowledge-bases/{knowledge_base_id}/documents", response_model=ItemList[Document], responses={404: {}})
async def list_documents(
    knowledge_base_id: UUID,
    call: CallDep,
    limit: Limit = 50,
    cursor: Cursor = None,
    state: Annotated[DocumentState | None, Query(description="only those in this state")] = None,
    tag: Annotated[Tags, Query(description="only those with this tag; with all of several")] = [],  # noqa: B006 never changed
) -> Response:
    """Lists the documents of a knowledge base, newest first."""
    below = decode_id(cursor) if cursor is not None else HIGHEST_ID
    place = store.Place(call.tenant_id, knowledge_base_id, call.request_id)
    async with call.parts.pool.acquire() as connection:
        await require_knowledge_base(connection, call.tenant_id, knowledge_base_id)
        return page_by_id(await store.list_documents(connection, place, below, limit, state, tag))


@router.get("/documents/{document_id}", response_model=Document, responses={404: {}})
async def get_document(document_id: UUID, call: CallDep) -> Response:
    """Shows a document and how far it has come."""
    async with call.parts.pool.acquire() as connection:
        return JsonText(await store.read_document(connection, call.tenant_id, document_id))


@router.patch("/documents/{document_id}", response_model=Document, responses={400: {}, 404: {}, 413: {}, 415: {}})
async def update_document(document_id: UUID, body: DocumentPatch, call: CallDep) -> Response:
    """Changes a document's tags, date or name, at once for searches and lists. Nothing is embedded again."""
    columns = body.model_dump(include=body.model_fields_set)
    if "date" in columns:
        columns["document_date"] = columns.pop("date")
    if "filename" in columns:
        columns["filename"] = checked_filename(columns["filename"])
    async with call.parts.pool.acquire() as connection, connection.transaction():
        knowledge_base_id, frames = await store.update_document(connection, call.tenant_id, document_id, columns)
        answer = await store.read_document(connection, call.tenant_id, document_id)
    send_events(call.parts, knowledge_base_id, frames)
    return JsonText(answer)


@router.delete("/documents/{document_id}", status_code=204, responses={404: {}})
async def delete_document(document_id: UUID, call: CallDep) -> Response:
    """Deletes a document with its chunks; searches don't find it any more."""
    async with call.parts.pool.acquire() as connection, connection.transaction():
        knowledge_base_id, frames = await store.delete_document(connection, call.tenant_id, document_id)
    send_events(call.parts, knowledge_base_id, frames)
    with log_context(document_id=document_id):
        log.info("document.deleted")
    return Response(status_code=204)


@router.put(
    "/documents/{document_id}/content",
    status_code=202,
    response_model=Document,
    responses={400: {}, 404: {}, 409: {}, 413: {}, 415: {}},
    openapi_extra=_content(),
)
async def replace_content(document_id: UUID, request: Request, call: CallDep) -> Response:
    """Replaces the bytes of a document; the old version is found until the new one is ready.

    Takes a file in a form, which may have another name, or the bytes as they are, which keep the document's name.
    """
    async with call.parts.pool.acquire() as connection:
        filename = await store.filename_of(connection, call.tenant_id, document_id)
    async with (
        received_content(request, filename, call.parts.settings.limits) as upload,
        call.parts.storing_turns.at(_STORING),
        call.parts.pool.acquire() as connection,  # taken when the bytes are here, not while they come
        connection.transaction(),
    ):
        await call.parts.admission.require_room(connection, call.tenant_id, "document")
        change = await store.replace_content(connection, call.tenant_id, document_id, upload, call.request_id)
        body = await store.read_document(connection, call.tenant_id, document_id)
    announce(call.parts, change.knowledge_base_id, [change])
    return JsonText(body, 202)


@router.get("/documents/{document_id}/chunks", response_model=ItemList[Chunk], responses={404: {}})
async def list_chunks(document_id: UUID, call: CallDep, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """Lists what searches see of a document, in its order."""
    above = decode_number(cursor) if cursor is not None else -1
    async with call.parts.pool.acquire() as connection:
        return page_by_number(await store.list_chunks(connection, call.tenant_id, document_id, above, limit))
