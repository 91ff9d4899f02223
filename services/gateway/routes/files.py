"""Where a hit leads: the file that it is from, and the chunk by its id."""

from typing import Any
from uuid import UUID

from fastapi import APIRouter, Response

from services.gateway.answers import JsonText
from services.gateway.deps import CallDep
from services.gateway.downloads import Download
from services.gateway.schemas.knowledge_bases import Chunk
from services.gateway.store import files as store
from shared.contracts.media import SUPPORTED_MEDIA_TYPES

router = APIRouter(prefix="/api", tags=["documents"])

_FILE: dict[str, Any] = {
    "description": "The bytes.",
    "content": {name: {"schema": {"type": "string", "format": "binary"}} for name in SUPPORTED_MEDIA_TYPES},
}


@router.get(
    "/documents/{document_id}/file", status_code=200, response_class=Download, responses={200: _FILE, 404: {}, 429: {}}
)
async def get_file(document_id: UUID, call: CallDep) -> Response:
    """Sends a document's newest bytes as they were uploaded, for saving. When they are replaced meanwhile, the connection ends early."""
    parts = call.parts
    async with parts.pool.acquire() as connection:
        file = await store.find_file(connection, call.tenant_id, document_id)
    slot = parts.downloads.one_of(call.tenant_id)
    return Download(file, file.parts(parts.pool), slot, parts.settings.load.body_timeout)


@router.get("/chunks/{chunk_id}", response_model=Chunk, responses={404: {}})
async def get_chunk(chunk_id: UUID, call: CallDep) -> Response:
    """Shows a chunk, as long as searches find it: a document that is read again, or has new bytes, gets chunks with other ids."""
    async with call.parts.pool.acquire() as connection:
        return JsonText(await store.read_chunk(connection, call.tenant_id, chunk_id))
