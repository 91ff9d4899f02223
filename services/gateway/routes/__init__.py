"""The HTTP routes, one file a noun."""

from fastapi import APIRouter

from services.gateway.routes import (
    agents,
    catalogue,
    documents,
    events,
    health,
    knowledge_bases,
    messages,
    runs,
    search,
    sessions,
)

ROUTERS: tuple[APIRouter, ...] = (
    agents.router,
    sessions.router,
    messages.router,
    runs.router,
    knowledge_bases.router,
    documents.router,
    search.router,
    events.router,
    catalogue.router,
    health.router,
)
