"""Knowledge bases, documents, chunks and searches."""

from datetime import date, datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, StringConstraints

from services.gateway.schemas.runs import ErrorView
from services.gateway.schemas.text import Description, Name, Reference, storable
from shared.contracts.knowledge_settings import KnowledgeBaseSettings
from shared.contracts.questions import MAX_TOP_K, MAX_WORDINGS, RerankMode, SearchFilter, SearchMode

MAX_REPROCESSED = 10_000  # ids in one request


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
    """Fields to change; those left out stay as they are. `settings` are replaced as a whole, and apply to documents ingested from then on;
    `POST /api/knowledge-bases/{id}/reprocess` applies them to those that are there.

    Another embedding model serves as soon as all documents have its vectors, made in the background.
    """

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"description": "For the shop"}]})

    # The defaults are never read: only what was given is changed.
    name: Name = ""
    description: Description = ""
    embedding_model: Reference | None = None
    settings: KnowledgeBaseSettings = KnowledgeBaseSettings()


class NextEmbedding(BaseModel):
    """A model that is to serve when it has embedded all chunks: `done` of `total`. `error` says why it has failed."""

    model: str
    generation: int
    state: Literal["building", "failed"]
    done: int
    total: int
    error: ErrorView | None
    created_at: datetime


class PreviousEmbedding(BaseModel):
    """A model whose vectors are kept, those of newer documents too, so that it can serve again at once."""

    model: str
    generation: int
    replaced_at: datetime


class Embedding(BaseModel):
    """What a knowledge base is searched by: its model, and the number of its set of vectors."""

    model: str
    generation: int
    state: Literal["ready", "building", "failed"] = Field(description="ready, or the state of `next`")
    next: NextEmbedding | None
    previous: PreviousEmbedding | None


class KnowledgeBase(BaseModel):
    """A knowledge base. `last_seq` is the id of its newest event."""

    id: UUID
    name: str
    description: str
    embedding_model: str
    embedding: Embedding
    settings: KnowledgeBaseSettings
    last_seq: int
    created_at: datetime
    updated_at: datetime


class Progress(BaseModel):
    """Chunks embedded, of how many."""

    done: int
    total: int


class Waiting(ErrorView):
    """What keeps a document from being ingested, and since when. It is tried again by itself."""

    since: datetime


DocumentState = Literal["queued", "parsing", "splitting", "embedding", "ready", "failed"]


class Document(BaseModel):
    """A document. `version` counts its bytes and, from one to the next, how often these were read anew by other settings; `current_version`
    is that of the chunks which searches see.
    """

    id: UUID
    knowledge_base_id: UUID
    filename: str
    media_type: str
    size: int
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    version: int
    current_version: int | None
    state: DocumentState
    progress: Progress
    chunk_count: int
    tags: list[str]
    date: date | None
    warnings: list[ErrorView] = Field(description="What could not be read of a document that is usable all the same.")
    error: ErrorView | None
    waiting: Waiting | None = Field(
        description="Why it isn't going on: a model that doesn't answer, say. Null when it is."
    )
    created_at: datetime
    updated_at: datetime


class UploadedDocuments(BaseModel):
    """One document for each file, in the order of the files."""

    items: list[Document]


class RetriedDocuments(BaseModel):
    """How many documents were queued again."""

    retried: int
    more: bool = Field(description="There are more failed documents than one request queues: ask again.")


class ReprocessRequest(BaseModel):
    """Which documents are to be read again; all of them when nothing is said."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{}]})

    document_ids: list[UUID] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_REPROCESSED,
        description="Only these. null: all of the knowledge base.",
    )
    cursor: str | None = Field(default=None, max_length=100, description="`next_cursor` of the call before.")


class ReprocessedDocuments(BaseModel):
    """How many documents were queued: those that waited already are not counted, they are read with the settings of now anyway."""

    reprocessed: int
    more: bool = Field(description="There are more than one request queues: ask again with `next_cursor` as `cursor`.")
    next_cursor: str | None
    missing: list[UUID] = Field(description="Those of `document_ids` that the knowledge base doesn't have.")


class Chunk(BaseModel):
    """A piece of a document as searches see it. Offsets are characters of the document's normalised text.

    Pages (of a PDF) or slides count from 1; null where the format has none, and for documents ingested before pages were noted.
    """

    id: UUID
    document_id: UUID
    version: int
    ordinal: int
    parent_id: UUID | None = Field(description="The larger piece that a search returns for this one; null: itself.")
    title: str
    heading_path: list[str]
    content: str
    kind: Literal["original", "summary"]
    char_start: int
    char_end: int
    header_chars: int = Field(
        description="So many characters of the content repeat a table's header; char_start is the offset of what follows them."
    )
    page_first: int | None
    page_last: int | None
    metadata: dict[str, JsonValue]


Query = Annotated[
    str,
    StringConstraints(min_length=1, max_length=20_000, pattern=r"\S"),
    AfterValidator(storable),
    Field(json_schema_extra={"pattern": r"^[^\u0000]*[^\s\u0000][^\u0000]*$"}),
]


class SearchRequest(BaseModel):
    """What to look for. `min_score` is on the scale of a hit's `score`; `queries` are further wordings of the same question."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"query": "order table", "top_k": 3}]})

    query: Query
    queries: list[Query] = Field(default=[], max_length=MAX_WORDINGS)
    top_k: int = Field(default=5, ge=1, le=MAX_TOP_K, strict=True)
    min_score: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False, strict=True)
    mode: SearchMode = "hybrid"
    rerank: RerankMode | None = Field(default=None, description="null: as the installation is set")
    filter: SearchFilter | None = None
    explain: bool = Field(default=False, strict=True)
