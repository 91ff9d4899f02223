"""Uploaded files: received by Starlette into spooled temporary files, checked and hashed here, handed on in parts."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, cast

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from services.gateway.refusals import FieldError, Refusal, wrong_field
from services.gateway.schemas.labels import MAX_TAGS, Labels, split_tags
from services.gateway.settings import LimitSettings
from services.gateway.store.documents import Upload
from shared.contracts.media import PLAIN_TEXT, SUPPORTED_FORMATS, supported_media_type

_PART_BYTES = 1024 * 1024
_MAX_NAME = 255
_MAX_FIELDS = 2 * MAX_TAGS
_MAX_SHOWN_NAME = 64
_FILE_FIELDS = ("files", "file")  # one name means as much as the other
LABEL_FIELDS = ("tags", "date")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class ReceivedForm:
    """The files of a form, and the labels for all of them."""

    files: list[Upload]
    labels: Labels


@asynccontextmanager
async def received_files(
    request: Request, limits: LimitSettings, label_fields: Sequence[str] = LABEL_FIELDS
) -> AsyncIterator[ReceivedForm]:
    """The checked files of a multipart request; they are gone after the block.

    Raises Refusal: unreadable, of other fields than `files` (or `file`) and these for labels, no file, too many, too large, empty, or of a
    type that isn't supported, or two dates; RequestValidationError: wrong labels.
    """
    if not _is_multipart(request):
        raise Refusal("unsupported_media_type", "Send the files as multipart/form-data.")
    try:
        async with request.form(max_files=limits.files, max_fields=_MAX_FIELDS) as form:
            _require_known_fields(form, label_fields)
            files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
            if not files:
                raise wrong_field("files", "invalid_request", "At least one file is needed.")
            labels = _labels(form)
            yield ReceivedForm([await check_file(file, limits.file_bytes) for file in files], labels)
    except HTTPException as error:
        # Starlette's words for a multipart body that can't be read, or for too many files.
        if error.status_code == 400:
            raise Refusal("malformed_request", str(error.detail)) from None
        raise


@asynccontextmanager
async def received_content(request: Request, filename: str, limits: LimitSettings) -> AsyncIterator[Upload]:
    """One checked file: the only one of a multipart request, or else the request's whole body under the name that it had before.

    Raises Refusal as `received_files` does.
    """
    if _is_multipart(request):
        async with received_files(request, limits, label_fields=()) as form:
            if len(form.files) != 1:
                raise wrong_field("file", "invalid_request", "Exactly one file is needed.")
            yield form.files[0]
        return
    with SpooledTemporaryFile(max_size=_PART_BYTES) as spool:
        async for part in request.stream():
            await asyncio.to_thread(spool.write, part)
        file = UploadFile(cast(BinaryIO, spool), filename=filename, headers=request.headers)
        yield await check_file(file, limits.file_bytes)


def _require_known_fields(form: FormData, label_fields: Sequence[str]) -> None:
    """A field that is misspelt or misplaced would be left out in silence. Raises Refusal."""
    for name, value in form.multi_items():
        is_file = isinstance(value, UploadFile)
        if name in (_FILE_FIELDS if is_file else label_fields):
            continue
        shown = name[:_MAX_SHOWN_NAME] if name.isprintable() else ascii(name[:_MAX_SHOWN_NAME])
        known = ", ".join((_FILE_FIELDS[0], *label_fields))
        problem = (
            "must be a file" if name in _FILE_FIELDS else "must not be a file" if name in label_fields else "unknown"
        )
        message = f"The form's field {shown}: {problem}. There are: {known}."
        raise Refusal("invalid_request", message, fields=(FieldError(shown, "unknown_field", message),))


def _labels(form: FormData) -> Labels:
    """The fields `tags`, any number of them, and `date`, at most one. Raises Refusal and RequestValidationError."""
    texts = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
    tags = split_tags(value for name, value in texts if name == "tags")
    dates = [value for name, value in texts if name == "date"]
    if len(dates) > 1:
        raise wrong_field("date", "invalid_request", "The form's field date: there must not be more than one.")
    try:
        return Labels.model_validate({"tags": tags, "date": next(filter(None, dates), None)})
    except ValidationError as error:
        raise RequestValidationError([{**item, "loc": ("body", *item["loc"])} for item in error.errors()]) from None


def _is_multipart(request: Request) -> bool:
    return request.headers.get("content-type", "").lower().startswith("multipart/form-data")


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


def checked_filename(name: str) -> str:
    """A document's new name. Raises Refusal when it is one of a type that isn't supported."""
    filename = clean_filename(name)
    if supported_media_type(filename, PLAIN_TEXT) is None:
        raise wrong_field("filename", "unsupported_media_type", f"{filename}: this type is not supported.")
    return filename


def clean_filename(name: str) -> str:
    """The last part of a path without control characters, at most 255 characters with its suffix kept; `file` when nothing is left.

    Characters that turn the direction of writing go as well: they show `cod.exe` as `exe.doc`, and no name needs them.
    """
    last = re.split(r"[/\\]", name)[-1]
    cleaned = _CONTROL.sub("", last).strip()
    if cleaned.strip(".") == "":
        return "file"
    if len(cleaned) > _MAX_NAME:
        suffix = PurePosixPath(cleaned).suffix[:20]
        cleaned = cleaned[: _MAX_NAME - len(suffix)] + suffix
    return cleaned
