"""Which HTTP status each error has, and how it is told: RFC 9457 `application/problem+json` for every error there is."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from services.gateway.refusals import FieldError, Refusal
from services.gateway.subscriptions import EventsUnavailable
from shared.db.pool import DATABASE_TROUBLE
from shared.json_text import to_json
from shared.rpc import QuestionFailed

log = structlog.get_logger()

MEDIA_TYPE = "application/problem+json"

# code: (status, title). Codes are part of the API: programs rely on them.
PROBLEMS: Mapping[str, tuple[int, str]] = {
    "malformed_request": (400, "The request can't be read"),
    "invalid_event_id": (400, "The place in the event stream is not one"),
    "unauthorized": (401, "A valid API key is needed"),
    "not_found": (404, "There is no such thing"),
    "method_not_allowed": (405, "This path doesn't take that method"),
    "agent_deleted": (409, "The agent was deleted"),
    "session_busy": (409, "The session has an unfinished run"),
    "step_not_unknown": (409, "The outcome of the step is not unknown"),
    "idempotency_conflict": (409, "The idempotency key was used before"),
    "duplicate_document": (409, "The knowledge base has a document with this content"),
    "no_previous_embedding": (409, "There is no previous embedding"),
    "request_timeout": (408, "The request took too long to arrive"),
    "too_large": (413, "The request is too large"),
    "unsupported_media_type": (415, "The type is not supported"),
    "invalid_request": (422, "The request is not valid"),
    "invalid_cursor": (422, "The cursor is not valid"),
    "unknown_model": (422, "There is no such model"),
    "unusable_model": (422, "The model can't be used"),
    "unknown_tool": (422, "There is no such tool"),
    "unknown_knowledge_base": (422, "There is no such knowledge base"),
    "empty_file": (422, "The file is empty"),
    "session_queue_full": (429, "Too many messages wait"),
    "too_many_runs": (429, "Too many runs are unfinished"),
    "too_many_documents": (429, "Too many documents are unfinished"),
    "system_full": (429, "Too much work is unfinished"),
    "too_many_uploads": (429, "Too many uploads at once"),
    "too_many_downloads": (429, "Too many files are being sent"),
    "too_many_streams": (429, "Too many event streams are open"),
    "rate_limited": (429, "Too many requests"),
    "internal_error": (500, "Something went wrong here"),
    "retrieval_failed": (500, "The search failed"),
    "embedding_failed": (502, "The embedding model gives no vectors"),
    "retrieval_unavailable": (503, "The search can't be reached now"),
    "unavailable": (503, "The service is not available now"),
}

_CODE_OF_STATUS = {
    400: "malformed_request",
    401: "unauthorized",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "too_large",
    503: "unavailable",
}
_RETRY_SECONDS = 2


class ProblemResponse(Response):
    """A problem, by its code."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        fields: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
        **extra: object,
    ) -> None:
        status, title = PROBLEMS[code]
        body: dict[str, Any] = {
            "type": f"urn:chatmind:problem:{code}",
            "title": title,
            "status": status,
            "detail": detail,
            "code": code,
        }
        if fields:
            body["errors"] = [{"field": f.field, "code": f.code, "message": f.message} for f in fields]
        body.update({name: value for name, value in extra.items() if value is not None})
        super().__init__(to_json(body), status, headers)


def refused(error: Refusal) -> ProblemResponse:
    """A refusal as its response. A code that is not listed above is a mistake of ours."""
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if error.code == "unauthorized":
        headers["WWW-Authenticate"] = "Bearer"
    return ProblemResponse(error.code, error.message, fields=error.fields, headers=headers, run_id=error.run_id)


def unavailable() -> ProblemResponse:
    """The database is away or too busy."""
    headers = {"Retry-After": str(_RETRY_SECONDS)}
    return ProblemResponse("unavailable", "Try again in a moment.", headers=headers)


def internal_error() -> ProblemResponse:
    return ProblemResponse("internal_error", "It was logged with this request's id.")


def install(app: FastAPI, allowed_methods: Callable[[str], str]) -> None:
    """Makes every error of the application a problem. `allowed_methods` says what a path takes, for the Allow header."""

    async def on_http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = allowed_methods(request.url.path)
        code = _CODE_OF_STATUS.get(error.status_code, "malformed_request")
        return ProblemResponse(code, str(error.detail), headers=headers)

    app.add_exception_handler(Refusal, _on_refusal)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(QuestionFailed, _on_question_failed)
    for trouble in (*DATABASE_TROUBLE, EventsUnavailable):
        app.add_exception_handler(trouble, _on_trouble)


async def _on_refusal(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return refused(error)


async def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    if any(item["loc"] == ("body",) and item["type"] == "model_attributes_type" for item in error.errors()):
        sent = request.headers.get("content-type", "")
        if "json" not in sent.lower():  # FastAPI hands on such a body as text, and says only that it is none of ours
            message = "send the body as JSON, with the header Content-Type: application/json"
            return ProblemResponse("invalid_request", message, fields=[FieldError("body", "not_json", message)])
    fields = [_field_error(item["loc"], item["type"], item["msg"]) for item in error.errors()]
    return ProblemResponse("invalid_request", "; ".join(f"{f.field}: {f.message}" for f in fields[:3]), fields=fields)


def _field_error(location: Sequence[str | int], kind: str, message: str) -> FieldError:
    # Where JSON can't be read, the second part is an offset and no field.
    place = location[:1] if kind == "json_invalid" else location
    return FieldError(_field_name(place), kind, message.removeprefix("Value error, "))


def _field_name(location: Sequence[str | int]) -> str:
    # The first part says where the field is (body, query, path, header); a wrong body as a whole has no other.
    parts = [str(part) for part in location[1:]] or [str(part) for part in location]
    return ".".join(part if part.isprintable() else ascii(part) for part in parts)


async def _on_question_failed(_request: Request, error: Exception) -> Response:
    assert isinstance(error, QuestionFailed)
    log.warning("search.failed", code=error.code)
    if error.code == "knowledge_base_not_found":  # deleted since the question was asked
        return ProblemResponse("not_found", "There is no such knowledge base.")
    if error.retryable:
        headers = {"Retry-After": str(_RETRY_SECONDS)}
        what = "The embedding model doesn't answer. " if error.code.startswith("embedding_") else ""
        return ProblemResponse(
            "retrieval_unavailable", f"{what}Try again in a moment.", headers=headers, cause=error.code
        )
    code = "embedding_failed" if error.code.startswith("embedding_") else "retrieval_failed"
    return ProblemResponse(code, error.message, cause=error.code)


async def _on_trouble(_request: Request, error: Exception) -> Response:
    log.warning("database.unavailable", cause=type(error).__name__)
    return unavailable()
