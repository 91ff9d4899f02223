"""Files on their way out: always as something to save, never as a page that a browser would show in our name."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from urllib.parse import quote

import structlog
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from services.gateway.problems import refused
from services.gateway.refusals import Refusal
from services.gateway.store.files import FileChanged, StoredFile

log = structlog.get_logger()

_ATTRIBUTE_CHARS = "!#$&+-.^_`|~"  # RFC 8187 attr-char, letters and digits apart


class Download(StreamingResponse):
    """A file while it is sent. `slot` is held meanwhile; the client has `timeout` seconds to take each part.

    Its connection ends early when `parts` say that the file has changed: what was announced can't be sent any more.
    """

    def __init__(
        self, file: StoredFile, parts: AsyncIterator[bytes], slot: AbstractContextManager[None], timeout: float
    ) -> None:
        headers = {
            "Content-Type": file.media_type,  # without a charset: the encoding is the file's own affair
            "Content-Length": str(file.size),
            "Content-Disposition": attachment(file.filename),
            "Content-Security-Policy": "sandbox; default-src 'none'",
            "X-Content-Type-Options": "nosniff",
        }
        super().__init__(parts, headers=headers)
        self._slot = slot
        self._timeout = timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._slot:
                await super().__call__(scope, receive, send)
        except Refusal as refusal:
            await refused(refusal)(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            try:
                async with asyncio.timeout(self._timeout):
                    await send(message)
            except TimeoutError:
                raise ClientDisconnect from None

        try:
            await super().stream_response(send_in_time)
        except FileChanged:
            log.warning("file.changed")
            raise ClientDisconnect from None


def attachment(filename: str) -> str:
    """A Content-Disposition by RFC 6266: the name in ASCII for old clients, and as it is, percent-encoded, for all others."""
    plain = "".join(char if char.isascii() and char.isprintable() and char not in '"\\%' else "_" for char in filename)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(filename, safe=_ATTRIBUTE_CHARS)}"
