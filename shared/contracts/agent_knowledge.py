"""The `knowledge` object of an agent: how its searches are made. What it may search at all are its grants."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from shared.contracts.questions import RerankMode, SearchFilter

QueryRewriting = Literal["off", "rewrite", "multi"]


class AgentKnowledge(BaseModel):
    """How KnowledgeTool searches for an agent; what is left out has its default.

    `query_rewriting`: before a search the agent's own model is asked once. `rewrite` makes the query understandable without the
    conversation ("and the second one?"), `multi` adds up to three other wordings. The model's query is always searched for as well.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    query_rewriting: QueryRewriting = "off"
    min_score: float | None = Field(
        default=None, ge=0, le=1, allow_inf_nan=False, strict=True, description="on the scale of a hit's score"
    )
    rerank: RerankMode | None = Field(default=None, description="null: as the installation is set")
    filter: SearchFilter | None = Field(default=None, description="Only documents that it lets through are found.")
