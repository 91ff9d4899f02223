"""Event streams over SSE."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Header, Query, Response
from starlette.types import Receive, Scope, Send

from services.gateway.deps import Call, CallDep
from services.gateway.middleware import STREAM
from services.gateway.refusals import Refusal, not_found
from services.gateway.sse import EventStream
from services.gateway.streams import FutureEvent, Streams, UnknownStream
from services.gateway.subscriptions import TooManyStreams

router = APIRouter(prefix="/api", tags=["events"])

_MAX_SEQ = 2**63 - 1
_RETRY_SECONDS = 5

After = Annotated[
    str | None,
    Query(
        description="Start behind this event; 0: with the first. None: with the next one.",
        json_schema_extra={"pattern": "^[0-9]{1,19}$"},
    ),
]
LastEventId = Annotated[
    str | None,
    Header(description="The same as `after`, which it overrides.", json_schema_extra={"pattern": "^[0-9]{1,19}$"}),
]
_STREAM = {
    "description": "Server-sent events: `id` is the seq, `event` the type, `data` one line of JSON.",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}


class _EventStreamResponse(Response):
    """Leaves the stream for `RequestContext` to send, when everything that was needed to find it is gone from memory."""

    media_type = "text/event-stream"

    def __init__(self, stream: EventStream) -> None:
        super().__init__()
        self._stream = stream

    async def __call__(self, scope: Scope, _receive: Receive, _send: Send) -> None:
        scope[STREAM] = self._stream


@router.get(
    "/sessions/{session_id}/events",
    status_code=200,
    response_class=_EventStreamResponse,
    responses={200: _STREAM, 400: {}, 404: {}, 429: {}},
)
async def session_events(
    session_id: UUID,
    call: CallDep,
    after: After = None,
    last_event_id: LastEventId = None,
    deltas: Annotated[bool, Query(description="Also text that the model is still producing.")] = False,
) -> Response:
    """Follows a session: every message, run and state, each exactly once, from any place."""
    streams = call.parts.session_streams
    return await _follow(call, streams, session_id, _place(after, last_event_id), deltas=deltas, what="session")


@router.get(
    "/knowledge-bases/{knowledge_base_id}/events",
    status_code=200,
    response_class=_EventStreamResponse,
    responses={200: _STREAM, 400: {}, 404: {}, 429: {}},
)
async def knowledge_base_events(
    knowledge_base_id: UUID,
    call: CallDep,
    after: After = None,
    last_event_id: LastEventId = None,
) -> Response:
    """Follows the documents of a knowledge base: every change of state, and deletions."""
    streams = call.parts.knowledge_base_streams
    return await _follow(call, streams, knowledge_base_id, _place(after, last_event_id), what="knowledge base")


async def _follow(
    call: Call, streams: Streams, stream_id: UUID, place: int | None, *, deltas: bool = False, what: str
) -> Response:
    try:
        source = await streams.subscribe(call.tenant_id, stream_id, call.key_hash, after=place, deltas=deltas)
    except UnknownStream:
        raise not_found(what) from None
    except FutureEvent:
        raise _wrong_place() from None
    except TooManyStreams:
        raise Refusal("too_many_streams", "Close a stream, or try again later.", retry_after=_RETRY_SECONDS) from None
    return _EventStreamResponse(EventStream(source, call.parts.settings.streams.send_timeout))


def _place(after: str | None, last_event_id: str | None) -> int | None:
    given = after if last_event_id is None else last_event_id
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and len(given) <= len(str(_MAX_SEQ)) and int(given) <= _MAX_SEQ):
        raise _wrong_place()
    return int(given)


def _wrong_place() -> Refusal:
    return Refusal("invalid_event_id", "The id must be that of an event that this stream has had, or 0.")
