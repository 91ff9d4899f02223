"""Health, and the way to the documentation. No key is needed here."""

from typing import Literal

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel

from services.gateway.deps import PartsDep
from shared.health import Readiness, check_all

router = APIRouter(tags=["health"])

# The gateway takes work in while the broker is away (wake-ups wait in the outbox): that is told, but it is no reason to send
# requests elsewhere.
_REQUIRED = ("database",)


class Alive(BaseModel):
    """The process lives."""

    alive: Literal[True] = True


@router.get("/healthz")
async def healthz() -> Alive:
    """Says that the process lives."""
    return Alive()


@router.get("/readyz", responses={503: {"model": Readiness, "description": "The database is away."}})
async def readyz(parts: PartsDep, response: Response) -> Readiness:
    """Says whether requests can be served: the database must answer; the broker is told, but not needed."""
    checks = (await check_all(parts.checks)).checks
    readiness = Readiness(ready=all(checks[name] for name in _REQUIRED), checks=checks)
    response.status_code = 200 if readiness.ready else 503
    return readiness


@router.get("/", include_in_schema=False)
async def root() -> RedirectResponse:
    """Leads to the documentation."""
    return RedirectResponse("/docs")
