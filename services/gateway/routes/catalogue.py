"""What agents may use: models and tools."""

from fastapi import APIRouter

from services.gateway.deps import CallDep
from services.gateway.schemas.catalogue import ModelView, ToolView
from services.gateway.schemas.lists import ItemList
from shared.contracts.tools import TOOLS

router = APIRouter(prefix="/api", tags=["catalogue"])


@router.get("/models", response_model=ItemList[ModelView])
async def list_models(call: CallDep) -> ItemList[ModelView]:
    """Lists all models, and why one can't be used now."""
    return ItemList[ModelView](items=await call.parts.model_status.views())


@router.get("/tools", response_model=ItemList[ToolView])
async def list_tools() -> ItemList[ToolView]:
    """Lists all tools."""
    return ItemList[ToolView](
        items=[ToolView(name=t.name, description=t.description, usable=True, problem=None) for t in TOOLS.values()]
    )
