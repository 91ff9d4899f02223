"""Uploaded files: received by Starlette into spooled temporary files, checked and hashed here, handed on in parts."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import PurePosixPath

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from services.gateway.refusals import Refusal, wrong_field
from services.gateway.settings import LimitSettings
from services.gateway.store.documents import Upload
from shared.contracts.media import SUPPORTED_FORMATS, supported_media_type

_PART_BYTES = 1024 * 1024
_MAX_NAME = 255
_MAX_FIELDS = 10
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@asynccontextmanager
async def received_files(request: Request, limits: LimitSettings) -> AsyncIterator[list[Upload]]:
    """The checked files of a multipart request; they are gone after the block.

    Raises Refusal: unreadable, none, too many, too large, empty, or of a type that isn't supported.
    """
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise Refusal("unsupported_media_type", "Send the files as multipart/form-data.")
    try:
        async with request.form(max_files=limits.files, max_fields=_MAX_FIELDS) as form:
            files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
            if not files:
                raise wrong_field("files", "invalid_request", "At least one file is needed.")
            yield [await check_file(file, limits.file_bytes) for file in files]
    except HTTPException as error:
        # Starlette's words for a multipart body that can't be read, or for too many files.
        if error.status_code == 400:
            raise Refusal("malformed_request", str(error.detail)) from None
        raise


async def check_file(file: UploadFile, limit: int) -> Upload:
    """Hashes a file and looks at its name, type and size. Raises Refusal."""
    filename = clean_filename(file.filename or "")
    media_type = supported_media_type(filename, file.content_type)
    if media_type is None:
        raise Refusal(
            "unsupported_media_type", f"{filename}: this type is not supported. Supported are {SUPPORTED_FORMATS}."
        )
    digest = hashlib.sha256()
    size = 0
    async for part in _parts(file):
        size += len(part)
        if size > limit:
            raise Refusal("too_large", f"{filename}: a file may have {limit:,} bytes.")
        await asyncio.to_thread(digest.update, part)
    if size == 0:
        raise wrong_field("files", "empty_file", f"{filename}: the file is empty.")
    return Upload(filename, media_type, size, digest.digest(), lambda: _parts(file))


async def _parts(file: UploadFile) -> AsyncIterator[bytes]:
    await file.seek(0)
    while part := await file.read(_PART_BYTES):
        yield part


def clean_filename(name: str) -> str:
    """The last part of a path without control characters, at most 255 characters with its suffix kept; `file` when nothing is left."""
    last = re.split(r"[/\\]", name)[-1]
    cleaned = _CONTROL.sub("", last).strip()
    if cleaned.strip(".") == "":
        return "file"
    if len(cleaned) > _MAX_NAME:
        suffix = PurePosixPath(cleaned).suffix[:20]
        cleaned = cleaned[: _MAX_NAME - len(suffix)] + suffix
    return cleaned
