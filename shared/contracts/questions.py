"""Questions to retrieval and its answers."""

from typing import Generic, Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from shared.contracts.base import Contract

SearchMode = Literal["hybrid", "dense", "keyword"]

MAX_TOP_K = 50


class RunScope(BaseModel):
    """On behalf of a run: retrieval looks the grants of the run's agent up; `knowledge_base_ids` can narrow them, never widen them."""

    model_config = ConfigDict(frozen=True)

    by: Literal["run"] = "run"
    run_id: UUID
    knowledge_base_ids: tuple[UUID, ...] | None = None


class TenantScope(BaseModel):
    """On behalf of a tenant whose key the gateway has checked: one of its own knowledge bases."""

    model_config = ConfigDict(frozen=True)

    by: Literal["tenant"] = "tenant"
    tenant_id: UUID
    knowledge_base_id: UUID


class SearchKnowledge(Contract):
    """agent_runner, gateway -> retrieval. `min_score` is a cosine similarity (0 to 1); see `Hit.score`."""

    scope: RunScope | TenantScope = Field(discriminator="by")
    query: str = Field(min_length=1, max_length=20_000)
    top_k: int = Field(default=5, ge=1, le=MAX_TOP_K)
    min_score: float | None = Field(default=None, ge=0, le=1)
    mode: SearchMode = "hybrid"
    explain: bool = False
    request_id: str | None = None


class HitExplanation(BaseModel):
    """Where a hit stood in each list (rank from 1, null = not in it) and what it scored there."""

    model_config = ConfigDict(frozen=True)

    dense_rank: int | None
    dense_score: float | None
    keyword_rank: int | None
    keyword_score: float | None
    fused_score: float


class Hit(BaseModel):
    """A chunk that was found. `score` is the cosine similarity of query and chunk (the best of title and body)."""

    model_config = ConfigDict(frozen=True)

    chunk_id: UUID
    document_id: UUID
    knowledge_base_id: UUID
    filename: str
    version: int
    ordinal: int
    title: str
    heading_path: tuple[str, ...]
    content: str
    char_start: int
    char_end: int
    score: float
    explanation: HitExplanation | None = None


class SearchResult(BaseModel):
    """Hits, best first."""

    model_config = ConfigDict(frozen=True)

    hits: tuple[Hit, ...]


ResultT = TypeVar("ResultT", bound=BaseModel)


class Answered(Contract, Generic[ResultT]):
    """The answer to a question."""

    ok: Literal[True] = True
    result: ResultT


class Refused(Contract):
    """Why there is no answer."""

    ok: Literal[False] = False
    code: str
    message: str
    retryable: bool
