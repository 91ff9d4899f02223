"""The HTTP routes, one file a noun."""

from fastapi import APIRouter
from fastapi.routing import APIRoute

from services.gateway.routes import (
    agents,
    catalogue,
    documents,
    events,
    files,
    health,
    knowledge_bases,
    messages,
    requeueing,
    runs,
    search,
    sessions,
)

# The busiest first: paths are tried in this order.
ROUTERS: tuple[APIRouter, ...] = (
    messages.router,
    events.router,
    sessions.router,
    runs.router,
    search.router,
    agents.router,
    knowledge_bases.router,
    documents.router,
    requeueing.router,
    files.router,
    catalogue.router,
    health.router,
)


def allowed_methods(path: str) -> str:
    """The methods that a path takes, for the Allow header; empty for a path that there isn't."""
    routes = (route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute))
    methods = {method for route in routes if route.path_regex.match(path) for method in route.methods or ()}
    return ", ".join(sorted(methods))
