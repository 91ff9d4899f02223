"""A ledger over HTTP: it writes down every side effect that a tool call has, and notices when one happens twice.

POST /read, /keyed or /once with a JSON object: the first books nothing, the second honours Idempotency-Key, the third books at every call
whatever its key, as a service does that knows no such header. The field `note` says how the call goes: "gate:NAME" waits until the test
opens that gate, "delay:5" takes five seconds, "status:500" answers with that status, "cut" breaks the connection, "large:50" sends so many
megabytes (all of them after booking, as a server does whose answer is lost), "refuse:503" answers so without booking.
"""

import asyncio
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

from tests.faults.clock import lasts
from tests.support.stack import free_port
from tests.support.waiting import eventually


@dataclass(frozen=True, slots=True)
class Entry:
    """One side effect. `key` is None where the caller sent none."""

    key: str | None
    run_id: str | None
    attempt: str | None
    body: dict[str, Any]
    at: float  # Unix time


@dataclass
class _Gate:
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: int = 0


class Ledger:
    """`entries` are the effects; `repeats` the calls whose key was there already and which had none."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.entries: list[Entry] = []
        self.repeats: list[Entry] = []
        self.reads = 0
        self._keys: set[str | None] = set()
        self._gates: defaultdict[str, _Gate] = defaultdict(_Gate)
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_post("/{kind:read|keyed|once}", self._record)
        self._runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        self.open_gates()
        await self._runner.cleanup()

    def forget(self) -> None:
        """Empties the ledger and opens its gates."""
        self.open_gates()
        self.entries, self.repeats, self.reads = [], [], 0
        self._keys.clear()

    def open(self, gate: str) -> None:
        self._gates[gate].opened.set()

    def open_gates(self) -> None:
        for gate in self._gates.values():
            gate.opened.set()
        self._gates.clear()

    async def someone_at(self, gate: str, within: float = 30) -> None:
        """Returns when a call stands at a gate."""

        async def waits() -> bool:
            return self._gates[gate].waiting > 0

        await eventually(waits, within=within)

    def of_run(self, run_id: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.run_id == run_id]

    def duplicates(self) -> dict[str, int]:
        """Effects that happened more than once, by key."""
        counts = Counter(entry.key for entry in self.entries if entry.key is not None)
        return {key: count for key, count in counts.items() if count > 1}

    async def _record(self, request: web.Request) -> web.Response:
        body = await request.json()
        kind, _, value = str(body.get("note", "")).partition(":")
        if kind == "refuse":
            return web.json_response({"error": "refused"}, status=int(value))
        entry = Entry(
            key=request.headers.get("Idempotency-Key"),
            run_id=request.headers.get("ChatMind-Run-Id"),
            attempt=request.headers.get("ChatMind-Attempt"),
            body=body,
            at=time.time(),
        )
        self._write(entry, request.match_info["kind"])
        await self._go(kind, value)
        if kind == "cut":
            assert request.transport is not None
            request.transport.abort()
        if kind == "large":
            return web.Response(body=b"x" * 1_000_000 * int(value))
        status = int(value) if kind == "status" else 200
        return web.json_response({"booked": body.get("amount"), "entries": len(self.entries)}, status=status)

    def _write(self, entry: Entry, kind: str) -> None:
        if kind == "read":
            self.reads += 1
        elif kind == "keyed" and entry.key in self._keys:
            self.repeats.append(entry)
        else:
            self._keys.add(entry.key)
            self.entries.append(entry)

    async def _go(self, kind: str, value: str) -> None:
        if kind == "delay":
            await lasts(float(value))
        if kind == "gate":
            gate = self._gates[value]
            gate.waiting += 1
            try:
                await gate.opened.wait()
            finally:
                gate.waiting -= 1
