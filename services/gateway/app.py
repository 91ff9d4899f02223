"""The FastAPI application around the parts of the process."""

from fastapi import FastAPI

from services.gateway import openapi, problems
from services.gateway.bodies import BodyLimit
from services.gateway.deps import Parts
from services.gateway.middleware import Authentication, RateLimit, RequestContext
from services.gateway.routes import ROUTERS, allowed_methods

_DESCRIPTION = """AI agents that know your documents.

Send `Authorization: Bearer <key>`. Errors are RFC 9457 problems with a stable `code`. Lists take `limit` and `cursor`. A `POST` that
creates takes `Idempotency-Key`."""

_TAGS = [
    {"name": "agents", "description": "Who answers: a model with a prompt, tools and knowledge."},
    {"name": "sessions", "description": "Conversations with an agent."},
    {"name": "messages", "description": "What is said."},
    {"name": "runs", "description": "Answers being worked on."},
    {"name": "knowledge bases", "description": "Documents that are searched together."},
    {"name": "documents", "description": "Files and what became of them."},
    {"name": "search", "description": "Finding passages."},
    {"name": "events", "description": "Following a session or a knowledge base as it happens."},
    {"name": "catalogue", "description": "What agents may use."},
    {"name": "health", "description": "For whoever looks after the process."},
]


def create_app(parts: Parts) -> FastAPI:
    """The application; it starts nothing by itself."""
    app = openapi.DocumentedApp(
        title="ChatMind",
        version="0.1.0",
        description=_DESCRIPTION,
        openapi_tags=_TAGS,
        generate_unique_id_function=openapi.operation_id,
        redirect_slashes=False,
    )
    app.state.parts = parts
    for router in ROUTERS:
        app.include_router(router)
    problems.install(app, allowed_methods)
    # The last one added is the first to see a request.
    app.add_middleware(BodyLimit, limits=parts.settings.limits, load=parts.settings.load)
    app.add_middleware(RateLimit, rates=parts.rates)
    app.add_middleware(Authentication, keys=parts.keys)
    app.add_middleware(RequestContext)
    return app
