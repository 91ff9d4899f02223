"""Around every request, as pure ASGI: its id and log context, its key, and its tenant's rate."""

import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect

from services.gateway.problems import internal_error, refused, unavailable
from services.gateway.rates import TenantRates
from services.gateway.refusals import Refusal
from services.gateway.store.api_keys import ApiKeys
from shared.db.pool import DATABASE_TROUBLE
from shared.ids import new_id
from shared.logging import log_context

log = structlog.get_logger()

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CALLER = "chatmind.caller"
REQUEST_ID = "chatmind.request_id"
STREAM = "chatmind.stream"  # an application that goes on with the response after all others have returned

# What a stream's request is still asked for: by the log, and by the server.
_KEPT_BY_STREAMS = {"type", "method", "path", "route", "http_version", CALLER}

_REQUEST_ID_FORM = re.compile(r"[A-Za-z0-9_-]{1,64}")
_QUIET_PATHS = ("/healthz", "/readyz")


class RequestContext:
    """Gives a request its id, binds it to the logs, logs how the request ended, and answers what nobody has caught."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID_FORM.fullmatch(given) else str(new_id())
        scope[REQUEST_ID] = request_id
        with log_context(request_id=request_id):
            await self._answer(scope, receive, send, request_id)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        started = time.perf_counter()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
            if (stream := scope.pop(STREAM, None)) is not None:
                for name in scope.keys() - _KEPT_BY_STREAMS:
                    del scope[name]
                await stream(scope, receive, send_with_id)
        except ClientDisconnect:
            log.info("request.abandoned")
        except Exception:
            log.exception("request.failed")
            if status:
                raise  # too late for another answer: the server cuts the connection
            await internal_error()(scope, receive, send_with_id)
        finally:
            _log_finished(scope, status, started)


def _log_finished(scope: Scope, status: int, started: float) -> None:
    if scope["path"] in _QUIET_PATHS and status == 200:
        return
    route = getattr(scope.get("route"), "path", None)
    duration = round((time.perf_counter() - started) * 1000, 1)
    with log_context(tenant_id=getattr(scope.get(CALLER), "tenant_id", None)):
        log.info("request.finished", method=scope["method"], route=route, status=status, ms=duration)


class Authentication:
    """Finds the caller of everything under /api before its body is read."""

    def __init__(self, app: App, keys: ApiKeys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/api/"):
            await self._app(scope, receive, send)
            return
        scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
        try:
            caller = await self._keys.find(key.strip()) if scheme.lower() == "bearer" else None
        except DATABASE_TROUBLE as error:
            log.warning("database.unavailable", cause=type(error).__name__)
            await unavailable()(scope, receive, send)
            return
        if caller is None:
            refusal = Refusal("unauthorized", "Send `Authorization: Bearer <key>` with a key that works.")
            await refused(refusal)(scope, receive, send)
            return
        scope[CALLER] = caller
        with log_context(tenant_id=caller.tenant_id):
            await self._app(scope, receive, send)


class RateLimit:
    """Refuses requests of tenants that send too many. Whoever passes them on can't change whose they are: a key belongs to a tenant."""

    def __init__(self, app: App, rates: TenantRates) -> None:
        self._app = app
        self._rates = rates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = scope.get(CALLER)
        if caller is not None:
            try:
                await self._rates.take(caller.tenant_id)
            except Refusal as refusal:
                await refused(refusal)(scope, receive, send)
                return
            except DATABASE_TROUBLE as error:
                log.warning("database.unavailable", cause=type(error).__name__)
                await unavailable()(scope, receive, send)
                return
        await self._app(scope, receive, send)
