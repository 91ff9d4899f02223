"""A tenant's HTTP client: both gateways, retries of what may be retried, and a record of what must not be answered."""

import re
import time
from dataclasses import dataclass
from random import Random
from typing import Any

import httpx

from shared.ids import new_id
from tests.faults.clock import lasts

_CANARY = re.compile(r"canary-[0-9a-f]{32}")
_LEAKS = re.compile(
    r"Traceback \(most|File \"/|asyncpg\.|site-packages|\bSELECT .+ FROM\b|\bINSERT INTO\b|amqp://|postgresql://"
)
_RETRIED = {429, 503}
_TIMEOUT = httpx.Timeout(30, connect=5)


@dataclass(frozen=True, slots=True)
class Incident:
    """An answer that no client should ever get."""

    what: str
    tenant: str
    detail: str

    def __str__(self) -> str:
        return f"{self.tenant}: {self.what}: {self.detail[:300]}"


class GaveUp(Exception):
    """No gateway accepted the request in the time that a client has patience for."""


class TenantClient:
    """`canary` is in everything that this tenant says and in nothing that another tenant or a log may ever show."""

    def __init__(self, tenant: str, key: str, urls: list[str], rng: Random, incidents: list[Incident]) -> None:
        self.tenant = tenant
        self.canary = f"canary-{new_id().hex}"
        self.rng = Random(rng.random())
        self._incidents = incidents
        headers = {"Authorization": f"Bearer {key}"}
        limits = httpx.Limits(max_connections=1000, max_keepalive_connections=20)
        self.gateways = [
            httpx.AsyncClient(base_url=url, headers=headers, timeout=_TIMEOUT, limits=limits) for url in urls
        ]

    async def close(self) -> None:
        for gateway in self.gateways:
            await gateway.aclose()

    def any_gateway(self) -> httpx.AsyncClient:
        return self.rng.choice(self.gateways)

    async def call(
        self, method: str, path: str, *, patience: float = 60, gateway: int | None = None, **request: Any
    ) -> httpx.Response:
        """Sends a request, with an Idempotency-Key when it creates something, again and again until a gateway has answered it.

        A cut connection, a 503 and a 429 are reasons to try again, at the other gateway perhaps. Raises GaveUp.
        """
        headers = dict(request.pop("headers", {}))
        if method == "POST":
            headers.setdefault("Idempotency-Key", str(new_id()))
        ends, last = time.monotonic() + patience, "nothing"
        while time.monotonic() < ends:
            chosen = self.any_gateway() if gateway is None else self.gateways[gateway]
            try:
                response = await chosen.request(method, path, headers=headers, **request)
            except httpx.HTTPError as error:
                last, pause = type(error).__name__, 0.2
            else:
                self.inspect(response.status_code, response.text)
                if response.status_code not in _RETRIED:
                    return response
                last, pause = str(response.status_code), min(float(response.headers.get("Retry-After", 0.5)), 5.0)
            await lasts(pause * self.rng.uniform(0.5, 1.0))
        raise GaveUp(f"{method} {path}: {last}")

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """A POST that must succeed; its answer."""
        response = await self.call("POST", path, json=body)
        if not response.is_success:
            raise AssertionError(f"POST {path}: {response.status_code} {response.text}")
        value: dict[str, Any] = response.json()
        return value

    async def items(self, path: str) -> list[dict[str, Any]]:
        """All items of a list, page by page."""
        items: list[dict[str, Any]] = []
        params: dict[str, Any] = {"limit": 200}
        while True:
            response = await self.call("GET", path, params=params)
            if response.status_code != 200:
                raise AssertionError(f"GET {path}: {response.status_code} {response.text}")
            page = response.json()
            items += page["items"]
            if page["next_cursor"] is None:
                return items
            params["cursor"] = page["next_cursor"]

    def inspect(self, status: int, text: str) -> None:
        """Notes down what must not be in an answer: another tenant's canary, insides of the program, an error without a code."""
        if foreign := set(_CANARY.findall(text)) - {self.canary}:
            self._incidents.append(Incident("a foreign canary", self.tenant, str(foreign)))
        if status >= 500 and status not in _RETRIED:
            self._incidents.append(Incident(f"status {status}", self.tenant, text))
        if status >= 400 and (leak := _LEAKS.search(text)):
            self._incidents.append(Incident("a leak", self.tenant, leak[0]))
        if status >= 400 and '"code"' not in text:
            self._incidents.append(Incident(f"status {status} without a code", self.tenant, text))
