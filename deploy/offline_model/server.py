"""The HTTP routes of the offline model."""

import json

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from deploy.offline_model import MODEL_ID
from deploy.offline_model.completion import Completion
from deploy.offline_model.conversation import BadRequestError


def build_app(token_seconds: float = 0.0) -> Starlette:
    """`token_seconds` is how long the model takes for a token of a streamed answer."""
    app = Starlette(
        routes=[
            Route("/health", _health),
            Route("/v1/models", _models),
            Route("/v1/chat/completions", _chat_completions, methods=["POST"]),
        ]
    )
    app.state.token_seconds = token_seconds
    return app


async def _health(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _models(_: Request) -> Response:
    model = {"id": MODEL_ID, "object": "model", "created": 0, "owned_by": "chatmind"}
    return JSONResponse({"object": "list", "data": [model]})


async def _chat_completions(request: Request) -> Response:
    try:
        body = json.loads(await request.body())
        if not isinstance(body, dict):
            raise BadRequestError("the body must be a JSON object")
        completion = Completion(body)
    except (ValueError, RecursionError):
        return _refusal("the body is not JSON")
    except BadRequestError as error:
        return _refusal(str(error))
    if not body.get("stream"):
        return JSONResponse(completion.whole())
    options = body.get("stream_options")
    include_usage = isinstance(options, dict) and bool(options.get("include_usage"))
    events = completion.events(request.app.state.token_seconds, include_usage=include_usage)
    return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


def _refusal(message: str) -> Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return JSONResponse({"error": error}, status_code=400)
