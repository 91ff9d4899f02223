"""Health over HTTP for the services that speak no HTTP themselves: GET /healthz (the process lives) and /readyz (it can do its work)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import orjson
import structlog
from pydantic import BaseModel

log = structlog.get_logger()

Check = Callable[[], Awaitable[bool]]

_MAX_HEAD_BYTES = 8192
_READ_SECONDS = 5.0
_CHECK_SECONDS = 2.0


class Readiness(BaseModel):
    """Whether everything that a service needs is there, and which part is not."""

    ready: bool
    checks: dict[str, bool]


async def check_all(checks: Mapping[str, Check]) -> Readiness:
    """Runs all checks at once; one that fails, raises or takes over 2 s counts as false."""
    outcomes = await asyncio.gather(*(_check(check) for check in checks.values()))
    return Readiness(ready=all(outcomes), checks=dict(zip(checks, outcomes, strict=True)))


async def _check(check: Check) -> bool:
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            return await check()
    except Exception as error:
        log.warning("check.failed", cause=type(error).__name__)
        return False


class HealthServer:
    """Answers the two GET requests on a port; everything else is a 404."""

    def __init__(self, host: str, port: int, checks: Mapping[str, Check]) -> None:
        self._host = host
        self._port = port
        self._checks = checks

    async def run(self) -> None:
        """Serves for ever. Raises OSError when the port is taken."""
        server = await asyncio.start_server(self._answer, self._host, self._port, limit=_MAX_HEAD_BYTES)
        async with server:
            await server.serve_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_READ_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                status, body = await self._route(head.split(b"\r\n", 1)[0])
                writer.write(
                    b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
                    % (status, len(body), body)
                )
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the asker went away or never asked
        finally:
            writer.close()

    async def _route(self, request_line: bytes) -> tuple[bytes, bytes]:
        if request_line.startswith(b"GET /healthz "):
            return b"200 OK", b'{"alive":true}'
        if request_line.startswith(b"GET /readyz "):
            readiness = await check_all(self._checks)
            return b"200 OK" if readiness.ready else b"503 Service Unavailable", readiness.model_dump_json().encode()
        return b"404 Not Found", orjson.dumps({"code": "not_found"})
