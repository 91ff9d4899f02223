"""What routes are given: the parts of the process, the caller, and small parsers of headers."""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, cast
from uuid import UUID

from fastapi import Depends, Header, Request, Security
from fastapi.security import HTTPBearer
from pydantic import BaseModel

from services.gateway.admission import Admission
from services.gateway.middleware import CALLER, REQUEST_ID
from services.gateway.model_status import ModelStatus
from services.gateway.refusals import wrong_field
from services.gateway.settings import GatewaySettings
from services.gateway.store.api_keys import ApiKeys, Caller
from services.gateway.store.idempotency import IdempotentRequest, fingerprint
from services.gateway.streams import Streams
from shared.db.pool import Pool
from shared.health import Check
from shared.hints import HintSender
from shared.model_registry import ModelRegistry
from shared.outbox import OutboxRelay
from shared.rpc import RpcClient


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that `main` has built."""

    settings: GatewaySettings
    registry: ModelRegistry
    pool: Pool
    relay: OutboxRelay
    hints: HintSender
    rpc: RpcClient
    keys: ApiKeys
    admission: Admission
    session_streams: Streams
    knowledge_base_streams: Streams
    model_status: ModelStatus
    checks: dict[str, Check]


async def _parts(request: Request) -> Parts:
    return cast(Parts, request.app.state.parts)


_bearer = HTTPBearer(auto_error=False, scheme_name="api_key", description="A key of one tenant: `cm_...`")


async def _caller(request: Request, _documented: Annotated[object, Security(_bearer)]) -> Caller:
    # The middleware has checked the key before the body was read; this shows in OpenAPI that it must be sent.
    return cast(Caller, request.scope[CALLER])


async def _tenant_id(caller: Annotated[Caller, Depends(_caller)]) -> UUID:
    return caller.tenant_id


async def _request_id(request: Request) -> str:
    return cast(str, request.scope[REQUEST_ID])


PartsDep = Annotated[Parts, Depends(_parts)]
CallerDep = Annotated[Caller, Depends(_caller)]
TenantId = Annotated[UUID, Depends(_tenant_id)]
RequestId = Annotated[str, Depends(_request_id)]

_KEY_FORM = re.compile(r"[\x21-\x7e]{1,255}")


@dataclass(frozen=True, slots=True)
class Idempotency:
    """The Idempotency-Key of a request, if it has one."""

    key: str | None
    tenant_id: UUID
    method: str
    path: str
    keep: timedelta

    def of(self, body: BaseModel | bytes) -> IdempotentRequest | None:
        """The request to remember, with its body as it was understood."""
        if self.key is None:
            return None
        content = body if isinstance(body, bytes) else body.model_dump_json().encode()
        return IdempotentRequest(self.tenant_id, self.key, fingerprint(self.method, self.path, content), self.keep)


async def _idempotency(
    request: Request,
    parts: PartsDep,
    tenant_id: TenantId,
    idempotency_key: Annotated[
        str | None,
        Header(
            description="1 to 255 visible ASCII characters. The same key and body again answer the same result for 24 hours.",
            json_schema_extra={"pattern": r"^[\x21-\x7e]{1,255}$"},
        ),
    ] = None,
) -> Idempotency:
    if idempotency_key is not None and not _KEY_FORM.fullmatch(idempotency_key):
        raise wrong_field("idempotency-key", "invalid_request", "1 to 255 visible ASCII characters are allowed")
    keep = timedelta(hours=parts.settings.idempotency_hours)
    return Idempotency(idempotency_key, tenant_id, request.method, request.url.path, keep)


IdempotencyDep = Annotated[Idempotency, Depends(_idempotency)]
