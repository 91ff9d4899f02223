"""An operator's HTTP tool, for tests: remembers every call and answers by its path."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web


@dataclass(frozen=True, slots=True)
class Received:
    """A call as it came in."""

    path: str
    headers: dict[str, str]
    arguments: dict[str, Any]


@dataclass
class ToolServer:
    """`/ok` answers, `/status/N` with that status, `/compressed/N` as well but compressed, `/redirect` elsewhere, `/large` with a
    megabyte, `/nul` with NUL and invalid UTF-8, `/cut` breaks the connection, `/gate` answers once `gate` is set."""

    calls: list[Received] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.calls.append(Received(path, headers, await request.json()))
        match path.split("/"):
            case ["status", status]:
                return web.Response(status=int(status), text="the tool's own words")
            case ["compressed", status]:
                return web.Response(status=int(status), body=b"zip", headers={"Content-Encoding": "x-zip"})
            case ["redirect"]:
                return web.Response(status=307, headers={"Location": f"{self.url}/ok"})
            case ["large"]:
                return web.Response(text="x" * 1_000_000)
            case ["nul"]:
                return web.Response(body=b"a\0b\xff")
            case ["cut"]:
                assert request.transport is not None
                request.transport.close()
            case ["gate"]:
                await self.gate.wait()
        return web.Response(text=f"done {len(self.calls)}")
