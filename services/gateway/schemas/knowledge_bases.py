"""Knowledge bases, documents, chunks and searches."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, StringConstraints

from services.gateway.schemas.runs import ErrorView
from services.gateway.schemas.text import Description, Name, Reference, storable
from shared.contracts.knowledge_settings import KnowledgeBaseSettings
from shared.contracts.questions import MAX_TOP_K, SearchMode


class KnowledgeBaseCreate(BaseModel):
    """A new knowledge base."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"name": "Handbook"}]})

    name: Name
    description: Description = ""
    embedding_model: Reference | None = Field(
        default=None, description="A name from GET /api/models; null: the default model."
    )
    settings: KnowledgeBaseSettings = KnowledgeBaseSettings()


class KnowledgeBasePatch(BaseModel):
    """Fields to change; those left out stay as they are. New settings apply to documents that are ingested from then on."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"description": "For the shop"}]})

    # The defaults are never read: only what was given is changed.
    name: Name = ""
    description: Description = ""
    embedding_model: Reference | None = None
    settings: KnowledgeBaseSettings = KnowledgeBaseSettings()


class KnowledgeBase(BaseModel):
    """A knowledge base. `last_seq` is the id of its newest event."""

    id: UUID
    name: str
    description: str
    embedding_model: str
    settings: KnowledgeBaseSettings
    last_seq: int
    created_at: datetime
    updated_at: datetime


class Progress(BaseModel):
    """Chunks embedded, of how many."""

    done: int
    total: int


class Document(BaseModel):
    """A document. `version` is that of the newest bytes, `current_version` that of the chunks which searches see."""

    id: UUID
    knowledge_base_id: UUID
    filename: str
    media_type: str
    size: int
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    version: int
    current_version: int | None
    state: Literal["queued", "parsing", "splitting", "embedding", "ready", "failed"]
    progress: Progress
    chunk_count: int
    error: ErrorView | None
    created_at: datetime
    updated_at: datetime


class UploadedDocuments(BaseModel):
    """One document for each file, in the order of the files."""

    items: list[Document]


class RetriedDocuments(BaseModel):
    """How many documents were queued again."""

    retried: int
    more: bool = Field(description="There are more failed documents than one request queues: ask again.")


class Chunk(BaseModel):
    """A piece of a document as searches see it. Offsets are characters of the document's normalised text."""

    id: UUID
    document_id: UUID
    version: int
    ordinal: int
    title: str
    heading_path: list[str]
    content: str
    kind: Literal["original", "summary"]
    char_start: int
    char_end: int
    metadata: dict[str, JsonValue]


Query = Annotated[
    str,
    StringConstraints(min_length=1, max_length=20_000, pattern=r"\S"),
    AfterValidator(storable),
    Field(json_schema_extra={"pattern": r"^[^\u0000]*[^\s\u0000][^\u0000]*$"}),
]


class SearchRequest(BaseModel):
    """What to look for. `min_score` is a cosine similarity."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"query": "order table", "top_k": 3}]})

    query: Query
    top_k: int = Field(default=5, ge=1, le=MAX_TOP_K, strict=True)
    min_score: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False, strict=True)
    mode: SearchMode = "hybrid"
    explain: bool = Field(default=False, strict=True)
