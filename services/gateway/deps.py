"""What routes are given: the parts of the process, the caller, and small parsers of headers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, cast
from uuid import UUID

from fastapi import Depends, Header, Query, Request
from pydantic import BaseModel

from services.gateway.admission import Admission
from services.gateway.middleware import CALLER, REQUEST_ID
from services.gateway.model_status import ModelStatus
from services.gateway.rates import TenantRates
from services.gateway.refusals import wrong_field
from services.gateway.settings import GatewaySettings
from services.gateway.slots import Slots
from services.gateway.store.api_keys import ApiKeys, Caller
from services.gateway.store.idempotency import IdempotentRequest, fingerprint
from services.gateway.streams import Streams
from services.gateway.turns import Turns
from shared.db.pool import Pool
from shared.health import Check
from shared.hints import HintSender
from shared.model_registry import ModelRegistry
from shared.outbox import OutboxRelay
from shared.rpc import RpcClient
from shared.tool_registry import HttpToolEntry


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that `main` has built."""

    settings: GatewaySettings
    registry: ModelRegistry
    tools: Mapping[str, HttpToolEntry]
    pool: Pool
    relay: OutboxRelay
    hints: HintSender
    rpc: RpcClient
    keys: ApiKeys
    admission: Admission
    rates: TenantRates
    session_turns: Turns
    storing_turns: Turns
    downloads: Slots
    session_streams: Streams
    knowledge_base_streams: Streams
    model_status: ModelStatus
    checks: dict[str, Check]


_KEY_FORM = re.compile(r"[\x21-\x7e]{1,255}")


@dataclass(frozen=True, slots=True)
class Call:
    """One request of a caller whose key was checked.

    All that routes need in one dependency: FastAPI solves every dependency anew for every request, at a price.
    """

    parts: Parts
    tenant_id: UUID
    key_hash: bytes
    request_id: str
    method: str
    path: str

    def idempotent(self, key: str | None, body: BaseModel | bytes) -> IdempotentRequest | None:
        """The request to remember, with its body as it was understood; None without a key. Raises Refusal for a malformed key."""
        if key is None:
            return None
        if not _KEY_FORM.fullmatch(key):
            raise wrong_field("idempotency-key", "invalid_request", "1 to 255 visible ASCII characters are allowed")
        content = body if isinstance(body, bytes) else body.model_dump_json().encode()
        keep = timedelta(hours=self.parts.settings.idempotency_hours)
        return IdempotentRequest(self.tenant_id, key, fingerprint(self.method, self.path, content), keep)


async def _parts(request: Request) -> Parts:
    return cast(Parts, request.app.state.parts)


async def _call(request: Request) -> Call:
    # The middleware has found the caller before the body was read; `openapi` tells that a key must be sent.
    caller = cast(Caller, request.scope[CALLER])
    return Call(
        parts=request.app.state.parts,
        tenant_id=caller.tenant_id,
        key_hash=caller.key_hash,
        request_id=request.scope[REQUEST_ID],
        method=request.method,
        path=request.scope["path"],
    )


PartsDep = Annotated[Parts, Depends(_parts)]
CallDep = Annotated[Call, Depends(_call)]
IdempotencyKey = Annotated[
    str | None,
    Header(
        description="1 to 255 visible ASCII characters. The same key and body again answer the same result for 24 hours.",
        json_schema_extra={"pattern": r"^[\x21-\x7e]{1,255}$"},
    ),
]

Limit = Annotated[int, Query(ge=1, le=200, description="Items of a page.")]
Cursor = Annotated[
    str | None, Query(max_length=100, description="`next_cursor` of the page before. None: from the start.")
]
