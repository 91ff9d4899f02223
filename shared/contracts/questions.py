"""Questions to retrieval and its answers."""

import re
from collections.abc import Mapping
from datetime import date
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar
from uuid import UUID

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from shared.contracts.base import Contract

SearchMode = Literal["hybrid", "dense", "keyword"]
RerankMode = Literal["off", "lexical", "model"]

MAX_TOP_K = 50
MAX_QUERY_CHARS = 20_000
MAX_WORDINGS = 4


# The days beside these, the first and the last that a date can hold, are how the database's driver writes -infinity and infinity.
_FIRST_DAY = date(1, 1, 2)
_LAST_DAY = date(9999, 12, 30)
_DATE_FORM = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


def _written_date(value: object) -> object:
    # Nor a text of seconds since 1970, which a date could be read from as well.
    if not isinstance(value, date) and not (isinstance(value, str) and _DATE_FORM.fullmatch(value)):
        raise ValueError("must be a date such as 2024-12-31")
    return value


def _finite(day: date) -> date:
    if not _FIRST_DAY <= day <= _LAST_DAY:
        raise ValueError(f"must be from {_FIRST_DAY} to {_LAST_DAY}")
    return day


Label = Annotated[
    str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]+$", json_schema_extra={"pattern": r"^[^\u0000]+$"})
]
Day = Annotated[date, BeforeValidator(_written_date, json_schema_input_type=date), AfterValidator(_finite)]


class SearchFilter(BaseModel):
    """Which documents may be found: all that is given must hold. It only ever narrows what the asker may read.

    A document's date is its own, else the day in UTC on which it was uploaded; both ends count. Unknown conditions are refused: a
    filter that is obeyed in part lets through what it was to keep out.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    document_ids: tuple[UUID, ...] | None = Field(default=None, min_length=1, max_length=1_000)
    media_types: tuple[Label, ...] | None = Field(default=None, min_length=1, max_length=50)
    tags: tuple[Label, ...] | None = Field(default=None, min_length=1, max_length=50, description="all of them")
    tags_any: tuple[Label, ...] | None = Field(default=None, min_length=1, max_length=50, description="one of them")
    date_from: Day | None = None
    date_to: Day | None = None

    @model_validator(mode="after")
    def _days_are_in_order(self) -> Self:
        if self.date_from and self.date_to and self.date_from > self.date_to:
            raise ValueError("date_from must not be after date_to")
        return self


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
    """agent_runner, gateway -> retrieval.

    `queries` are further wordings of the same question, `min_score` is on the scale of `Hit.score`, `rerank` without a value is up to
    retrieval. With a filter the question is of version 2: a receiver that knows no filters must refuse it, not leave the filter out.
    """

    reads: ClassVar[frozenset[int]] = frozenset({1, 2})

    scope: RunScope | TenantScope = Field(discriminator="by")
    query: str = Field(min_length=1, max_length=MAX_QUERY_CHARS)
    queries: tuple[Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARS)], ...] = Field(
        default=(), max_length=MAX_WORDINGS
    )
    top_k: int = Field(default=5, ge=1, le=MAX_TOP_K)
    min_score: float | None = Field(default=None, ge=0, le=1)
    mode: SearchMode = "hybrid"
    rerank: RerankMode | None = None
    filter: SearchFilter | None = None
    explain: bool = False
    request_id: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _filters_are_version_2(cls, body: Any) -> Any:
        if isinstance(body, Mapping) and body.get("filter") is not None:
            return {"schema_version": 2, **body}
        return body


class Place(BaseModel):
    """A chunk's score in one list (for which wording; 0 = `query`), what it adds to the fused score, and its rank from 1.

    A chunk that only words found has a cosine too, but no rank by it.
    """

    model_config = ConfigDict(frozen=True)

    source: Literal["dense", "keyword"]
    wording: int
    rank: int | None
    score: float
    contribution: float


class RerankExplanation(BaseModel):
    """What a reranker made of a candidate: its rank before, from 1, its score, and what that was computed from."""

    model_config = ConfigDict(frozen=True)

    by: str
    rank_before: int
    score: float
    features: dict[str, float] = {}


class HitExplanation(BaseModel):
    """Where a hit stood in each list of `query` (rank from 1, null = not in it) and what it scored there.

    `fused_score` is the sum of the contributions of all `places`. `score_parts` are what `Hit.score` is computed from.
    """

    model_config = ConfigDict(frozen=True)

    dense_rank: int | None
    dense_score: float | None
    keyword_rank: int | None
    keyword_score: float | None
    fused_score: float
    places: tuple[Place, ...] = ()
    rerank: RerankExplanation | None = None
    score_parts: dict[str, float] = {}


class Quote(BaseModel):
    """A passage of the document, word for word: `text` equals the document's text from `char_start` to `char_end`."""

    model_config = ConfigDict(frozen=True)

    text: str
    char_start: int
    char_end: int


class Hit(BaseModel):
    """A chunk that was found, or the larger passage (`parent_id`) around it, which `content`, title and range are of then.

    `score` says how well it fits, from 0 to 1, whatever the embedding model: see docs/decisions/0020-ranking.md. `quote` is what of the
    chunk matches best. Offsets are characters of the document's normalised text. The first `header_chars` of the content repeat
    the header of a table that the passage begins in the middle of: they are not part of its range. Pages (of a PDF) or slides, counting
    from 1, are those of the range; null where there are none.
    """

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
    header_chars: int = 0
    page_first: int | None = None
    page_last: int | None = None
    score: float
    quote: Quote | None = None
    parent_id: UUID | None = None
    explanation: HitExplanation | None = None


class SearchedBase(BaseModel):
    """How a knowledge base was searched for nearest vectors: all of them or by an index; null where vectors weren't needed."""

    model_config = ConfigDict(frozen=True)

    knowledge_base_id: UUID
    embedding_model: str
    embedding_generation: int
    scan: Literal["exact", "index"] | None


class LeftOut(BaseModel):
    """A candidate that is no hit, and why."""

    model_config = ConfigDict(frozen=True)

    chunk_id: UUID
    reason: Literal["below_min_score", "same_parent", "beyond_top_k"]
    score: float
    explanation: HitExplanation


class FusionScale(BaseModel):
    """How the scores of a list become contributions: weight * (score - low) / (high - low), and weight where high equals low."""

    model_config = ConfigDict(frozen=True)

    source: Literal["dense", "keyword"]
    wording: int
    low: float
    high: float
    weight: float


class SearchExplanation(BaseModel):
    """How a search went. `rerank` is who reranked, "off" for nobody; `left_out` holds the best of what is no hit."""

    model_config = ConfigDict(frozen=True)

    mode: SearchMode
    rerank: str
    filter: SearchFilter | None
    terms: tuple[str, ...]
    bases: tuple[SearchedBase, ...]
    scales: tuple[FusionScale, ...]
    left_out: tuple[LeftOut, ...]


class SearchResult(BaseModel):
    """Hits, best first.

    `degraded` says what had to be done without: `embeddings_unavailable` (found by words alone), `rerank_unavailable`.
    """

    model_config = ConfigDict(frozen=True)

    hits: tuple[Hit, ...]
    degraded: tuple[str, ...] = ()
    explanation: SearchExplanation | None = None


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
