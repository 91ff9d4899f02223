"""Settings of the ingestion service. Times are in seconds."""

from pydantic import BaseModel, Field

from services.ingestion.parsing.limits import ParseLimits
from services.ingestion.parsing.ocr import OcrSettings
from shared.db.pool import PoolSettings
from shared.jobs import JobSettings
from shared.leases import LeaseSettings
from shared.settings import CommonSettings


class WorkSettings(BaseModel):
    """How it is worked."""

    embed_retry: float = Field(default=20.0, ge=0, description="an embeddings server that is away gets this long")
    embed_seconds: float = Field(
        default=0.5, ge=0, description="what one request to an embeddings server should take; 0: whole batches"
    )
    courtesy: float = Field(
        default=3.0,
        ge=0,
        description="pauses while runs are being worked on and the machine is short of processors, as a multiple of the time worked",
    )
    progress_every: float = Field(default=0.5, ge=0, description="at most one progress event in this time")


class CacheSettings(BaseModel):
    """The embedding cache: what makes ingestion resume at the batch."""

    keep_days: float = Field(default=30.0, gt=0)
    prune_every: float = Field(default=3600.0, gt=0)


class VectorIndexSettings(BaseModel):
    """Approximate indexes of large knowledge bases."""

    min_vectors: int = Field(
        default=20_000, ge=1, description="a base with more gets an index, and keeps it down to half of that"
    )
    every: float = Field(default=5.0, gt=0, description="how often is looked for what is to be done")
    count_every: float = Field(default=60.0, ge=0, description="how often the vectors of indexed bases are counted")
    batch: int = Field(default=500, ge=1, description="vectors added to an index by one statement")
    memory_mb: int = Field(default=512, ge=64, description="for building an index")
    build_seconds: float = Field(default=3600.0, gt=0, description="how long building one may take")


class GenerationSettings(BaseModel):
    """Embeddings of a knowledge base that don't serve it, times apart from these in seconds."""

    keep_days: float = Field(
        default=7.0, gt=0, description="the former model of a knowledge base can be returned to at once for so long"
    )
    sweep_every: float = Field(default=600.0, gt=0)
    index_seconds: float = Field(
        default=600.0, ge=0, description="how long the next model of a large base waits for its index before it serves"
    )


class IngestionSettings(CommonSettings):
    """Read from CHATMIND_* variables; groups by two underscores, such as CHATMIND_WORK__SLOTS."""

    nice: int = Field(
        default=10, ge=0, le=19, description="the operating system's priority: somebody waits for the other services"
    )
    # Few at a time: the embeddings server sets the pace. What takes longer than the drain is handed back and resumes at the batch.
    # One slot is always left to others: a document may take a minute and a half.
    jobs: JobSettings = JobSettings(slots=3, tenant_share=0.7, batch=1, drain=2.0)
    work: WorkSettings = WorkSettings()
    # More attempts than a run has: nobody waits at the screen, and ten of them outlast some minutes without an embeddings server.
    lease: LeaseSettings = LeaseSettings(max_attempts=10)
    limits: ParseLimits = ParseLimits()
    ocr: OcrSettings = OcrSettings()
    cache: CacheSettings = CacheSettings()
    generations: GenerationSettings = GenerationSettings()
    generation_jobs: JobSettings = JobSettings(slots=1, tenant_share=1.0, batch=1, drain=2.0)
    vector_indexes: VectorIndexSettings = VectorIndexSettings()
    pool: PoolSettings = PoolSettings(max_size=8)
