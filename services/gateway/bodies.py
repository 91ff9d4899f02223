"""Bodies of requests, as pure ASGI: how large one may be, how long it may take, and how much of them this gateway holds at once."""

import asyncio
import re
from contextlib import nullcontext

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from services.gateway.middleware import CALLER, App, Message, Receive, Scope, Send
from services.gateway.problems import refused
from services.gateway.refusals import Refusal
from services.gateway.settings import LimitSettings, LoadSettings
from services.gateway.slots import Slots

_UPLOAD_PATH = re.compile(r"/api/(knowledge-bases/[^/]+/documents|documents/[^/]+/content)")
_RETRY_SECONDS = 2


class BodyLimit:
    """Refuses bodies that are too large, by what they announce and by what arrives, too slow, or too many at once."""

    def __init__(self, app: App, limits: LimitSettings, load: LoadSettings) -> None:
        self._app = app
        self._limits = limits
        self._load = load
        self._uploads = Slots(load.uploads_per_tenant, load.uploads, "too_many_uploads", "uploads")
        self.held = 0  # bytes of JSON bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_upload = scope["method"] in ("POST", "PUT") and _UPLOAD_PATH.fullmatch(scope["path"]) is not None
        limit = self._limits.upload_bytes if is_upload else self._limits.json_bytes
        announced = Headers(scope=scope).get("content-length", "")
        body = _Body(self, receive, limit, counted=not is_upload)
        try:
            if announced.isdecimal() and int(announced[:20]) > limit:
                raise _too_large(limit)
            with self._uploads.one_of(scope[CALLER].tenant_id) if is_upload else nullcontext():
                await self._app(scope, body.receive, send)
        except Refusal as refusal:
            await refused(refusal)(scope, receive, send)
        finally:
            self.held -= body.held

    @property
    def is_full(self) -> bool:
        return self.held > self._load.body_bytes

    @property
    def timeout(self) -> float:
        return self._load.body_timeout


class _Body:
    """One body while it comes in. FastAPI passes on HTTPException only; everything else that receiving raises becomes a 400."""

    def __init__(self, all_bodies: BodyLimit, receive: Receive, limit: int, *, counted: bool) -> None:
        self._all = all_bodies
        self._receive = receive
        self._limit = limit
        self._counted = counted
        self._received = 0
        self._complete = False
        self.held = 0

    async def receive(self) -> Message:
        if self._complete:  # what is left to wait for is the client's going away
            return await self._receive()
        try:
            async with asyncio.timeout(self._all.timeout):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, "The body took too long.", headers={"Connection": "close"}) from None
        self._complete = not message.get("more_body", False)
        self._count(len(message.get("body", b"")))
        return message

    def _count(self, size: int) -> None:
        self._received += size
        if self._received > self._limit:
            raise HTTPException(413, _too_large(self._limit).message)
        if self._counted:
            self.held += size
            self._all.held += size
            if self._all.is_full:
                raise HTTPException(503, "Too much is being received.", headers={"Retry-After": str(_RETRY_SECONDS)})


def _too_large(limit: int) -> Refusal:
    return Refusal("too_large", f"A request of this kind may have {limit:,} bytes.")
