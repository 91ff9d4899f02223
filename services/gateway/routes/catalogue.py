"""What agents may use: models and tools."""

from fastapi import APIRouter

from services.gateway.deps import CallDep
from services.gateway.schemas.catalogue import ModelView, ToolView
from services.gateway.schemas.lists import ItemList
from shared.contracts.tools import TOOLS
from shared.tool_registry import HttpToolEntry

router = APIRouter(prefix="/api", tags=["catalogue"])


@router.get("/models", response_model=ItemList[ModelView])
async def list_models(call: CallDep) -> ItemList[ModelView]:
    """Lists all models, and why one can't be used now."""
    return ItemList[ModelView](items=await call.parts.model_status.views())


@router.get("/tools", response_model=ItemList[ToolView])
async def list_tools(call: CallDep) -> ItemList[ToolView]:
    """Lists all tools, and why one can't be used now: those that come with ChatMind, and the operator's."""
    return ItemList[ToolView](
        items=[
            *(ToolView(**tool.model_dump(), usable=True, problem=None) for tool in TOOLS.values()),
            *(_view(entry) for entry in call.parts.tools.values()),
        ]
    )


def _view(entry: HttpToolEntry) -> ToolView:
    return ToolView(
        name=entry.name,
        description=entry.description,
        effect=entry.effect,
        usable=entry.problem is None,
        problem=entry.problem,
    )
