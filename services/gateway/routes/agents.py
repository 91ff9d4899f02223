"""Agents: who answers, with which model, tools and knowledge."""

from typing import Any
from uuid import UUID

from fastapi import APIRouter, Response

from services.gateway.answers import JsonText, StrictJsonRoute, page_by_id
from services.gateway.cursors import HIGHEST_ID, decode_id
from services.gateway.deps import CallDep, Cursor, IdempotencyKey, Limit, Parts
from services.gateway.refusals import wrong_field
from services.gateway.schemas.agents import Agent, AgentCreate, AgentPatch
from services.gateway.schemas.lists import ItemList
from services.gateway.store import agents as store
from services.gateway.store.idempotency import create_once
from shared.contracts.tools import TOOLS
from shared.model_registry import ModelRegistry, UnknownModelError

router = APIRouter(prefix="/api/agents", tags=["agents"], route_class=StrictJsonRoute)


@router.post("", status_code=201, response_model=Agent, responses={409: {}, 413: {}})
async def create_agent(body: AgentCreate, call: CallDep, idempotency_key: IdempotencyKey = None) -> Response:
    """Creates an agent."""
    columns = _columns(body, set(AgentCreate.model_fields), call.parts)
    async with call.parts.pool.acquire() as connection, connection.transaction():

        async def create() -> str:
            return await store.create_agent(connection, call.tenant_id, columns, body.knowledge_base_ids)

        return JsonText(await create_once(connection, call.idempotent(idempotency_key, body), 201, create), 201)


@router.get("", response_model=ItemList[Agent])
async def list_agents(call: CallDep, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """Lists agents, newest first."""
    below = decode_id(cursor) if cursor is not None else HIGHEST_ID
    async with call.parts.pool.acquire() as connection:
        return page_by_id(await store.list_agents(connection, call.tenant_id, below, limit))


@router.get("/{agent_id}", response_model=Agent, responses={404: {}})
async def get_agent(agent_id: UUID, call: CallDep) -> Response:
    """Shows an agent."""
    async with call.parts.pool.acquire() as connection:
        return JsonText(await store.read_agent(connection, call.tenant_id, agent_id))


@router.patch("/{agent_id}", response_model=Agent, responses={404: {}, 413: {}})
async def update_agent(agent_id: UUID, body: AgentPatch, call: CallDep) -> Response:
    """Changes fields of an agent; runs that begin afterwards see the change."""
    columns = _columns(body, body.model_fields_set, call.parts)
    grants = body.knowledge_base_ids if "knowledge_base_ids" in body.model_fields_set else None
    async with call.parts.pool.acquire() as connection, connection.transaction():
        return JsonText(await store.update_agent(connection, call.tenant_id, agent_id, columns, grants))


@router.delete("/{agent_id}", status_code=204, responses={404: {}})
async def delete_agent(agent_id: UUID, call: CallDep) -> Response:
    """Deletes an agent. Its sessions can be read, but take no further messages."""
    async with call.parts.pool.acquire() as connection:
        await store.delete_agent(connection, call.tenant_id, agent_id)
    return Response(status_code=204)


def _columns(body: AgentCreate | AgentPatch, fields: set[str], parts: Parts) -> dict[str, Any]:
    columns = body.model_dump(include=fields - {"knowledge_base_ids"}, exclude={"options", "knowledge"})
    if "options" in fields:
        columns["options"] = body.options.model_dump(exclude_none=True)
    if "knowledge" in fields:
        columns["knowledge"] = body.knowledge.model_dump(mode="json", exclude_defaults=True)
    if "model" in fields:
        columns["model"] = _model_name(body.model, parts.registry)
    if "tools" in fields:
        columns["tools"] = _tool_names(body.tools, [*TOOLS, *parts.tools])
    return columns


def _model_name(name: str | None, registry: ModelRegistry) -> str:
    try:
        return registry.chat_model(name).name
    except UnknownModelError:
        usable = ", ".join(model.name for model in registry.chat.values() if model.usable)
        raise wrong_field("model", "unknown_model", f"There is no such model; usable ones: {usable}") from None


def _tool_names(names: list[str] | None, known: list[str]) -> list[str]:
    if names is None:
        return list(TOOLS)  # what an operator has added acts on the world: an agent gets it by name
    if not set(names) <= set(known):
        raise wrong_field("tools", "unknown_tool", f"There is no such tool; there are: {', '.join(known)}")
    return names
