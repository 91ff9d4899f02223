"""Agents."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from services.gateway.schemas.text import Description, Name, Prompt, Reference, check_scalar
from shared.contracts.agent_knowledge import AgentKnowledge

MAX_STEPS = 20

# What the runner itself says to the model.
_RESERVED_OPTIONS = frozenset(
    {"messages", "model", "stream", "stream_options", "tools", "tool_choice", "n", "functions", "function_call"}
)
_MAX_OPTIONS = 32
_MAX_OPTION_NAME = 64


class ModelOptions(BaseModel):
    """How the model is asked. Further options are sent to the model as they are; each is a JSON scalar."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "maxProperties": _MAX_OPTIONS,
            "propertyNames": {
                "pattern": r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$",
                "not": {"enum": [*sorted(_RESERVED_OPTIONS)]},
            },
            "additionalProperties": {
                "anyOf": [
                    {"type": "string", "maxLength": 1000, "pattern": r"^[^\u0000]*$"},
                    {"type": "integer", "minimum": -(2**63) + 1, "maximum": 2**63 - 1},
                    {"type": "number"},
                    {"type": "boolean"},
                    {"type": "null"},
                ]
            },
        },
    )

    temperature: float | None = Field(default=None, ge=0, le=2, allow_inf_nan=False, strict=True)
    top_p: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False, strict=True)
    max_tokens: int | None = Field(default=None, ge=1, le=1_000_000, strict=True)

    @model_validator(mode="after")
    def _extras_are_scalars(self) -> "ModelOptions":
        extras = self.model_extra or {}
        if len(extras) > _MAX_OPTIONS - len(type(self).model_fields):
            raise PydanticCustomError("too_many_options", "at most 32 options")
        for name, value in extras.items():
            _check_option_name(name)
            check_scalar(value)
        return self


def _check_option_name(name: str) -> None:
    plain = name.isascii() and name.replace("_", "").replace(".", "").replace("-", "").isalnum() and name[0].isalpha()
    if not plain or len(name) > _MAX_OPTION_NAME:
        raise PydanticCustomError("option_name", "an option's name has letters, digits and _ . - only, at most 64")
    if name in _RESERVED_OPTIONS:
        raise PydanticCustomError("option_reserved", "the option {name} is not the agent's to set", {"name": name})


def _without_repeats(ids: list[UUID]) -> list[UUID]:
    return list(dict.fromkeys(ids))


def _tools_without_repeats(names: list[str]) -> list[str]:
    return list(dict.fromkeys(names))


ToolNames = Annotated[list[Reference], Field(max_length=50), AfterValidator(_tools_without_repeats)]
KnowledgeBaseIds = Annotated[list[UUID], Field(max_length=100), AfterValidator(_without_repeats)]
Steps = Annotated[int, Field(ge=1, le=MAX_STEPS, strict=True)]


class AgentCreate(BaseModel):
    """A new agent."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "name": "Shop assistant",
                    "system_prompt": "Answer from the shop's documents.",
                    "tools": ["KnowledgeTool"],
                }
            ]
        },
    )

    name: Name
    description: Description = ""
    system_prompt: Prompt = ""
    model: Reference | None = Field(default=None, description="A name from GET /api/models; null: the default model.")
    tools: ToolNames | None = Field(
        default=None, description="Names from GET /api/tools; null: those that come with ChatMind."
    )
    knowledge_base_ids: KnowledgeBaseIds = Field(default=[], description="What KnowledgeTool may read.")
    knowledge: AgentKnowledge = Field(default=AgentKnowledge(), description="How KnowledgeTool searches.")
    options: ModelOptions = ModelOptions()
    max_steps: Steps = MAX_STEPS


class AgentPatch(BaseModel):
    """Fields to change; those left out stay as they are. `knowledge` and `options` are replaced as a whole."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"name": "Shop assistant 2"}]})

    # The defaults are never read: only what was given is changed.
    name: Name = ""
    description: Description = ""
    system_prompt: Prompt = ""
    model: Reference | None = None
    tools: ToolNames | None = None
    knowledge_base_ids: KnowledgeBaseIds = []
    knowledge: AgentKnowledge = AgentKnowledge()
    options: ModelOptions = ModelOptions()
    max_steps: Steps = MAX_STEPS


class Agent(BaseModel):
    """An agent."""

    id: UUID
    name: str
    description: str
    system_prompt: str
    model: str
    tools: list[str]
    knowledge_base_ids: list[UUID]
    knowledge: AgentKnowledge
    options: dict[str, JsonValue]
    max_steps: int
    created_at: datetime
    updated_at: datetime
