"""Settings of the ingestion service. Times are in seconds."""

from pydantic import BaseModel, Field

from services.ingestion.parsing.limits import ParseLimits
from shared.db.pool import PoolSettings
from shared.leases import LeaseSettings
from shared.settings import CommonSettings


class WorkSettings(BaseModel):
    """How much is done at once, and how it is given up."""

    slots: int = Field(default=2, ge=1, le=64, description="documents worked on at once")
    slot_wait: float = Field(default=30.0, gt=0, description="a wake-up goes back to the queue after this long")
    drain_grace: float = Field(default=2.0, ge=0, description="at the end; a document that takes longer is handed back")
    embed_retry: float = Field(default=20.0, ge=0, description="an embeddings server that is away gets this long")
    progress_every: float = Field(default=0.5, ge=0, description="at most one progress event in this time")


class CacheSettings(BaseModel):
    """The embedding cache: what makes ingestion resume at the batch."""

    keep_days: float = Field(default=30.0, gt=0)
    prune_every: float = Field(default=3600.0, gt=0)


class IngestionSettings(CommonSettings):
    """Read from CHATMIND_* variables; groups by two underscores, such as CHATMIND_WORK__SLOTS."""

    work: WorkSettings = WorkSettings()
    # More attempts than a run has: nobody waits at the screen, and ten of them outlast some minutes without an embeddings server.
    leases: LeaseSettings = LeaseSettings(max_attempts=10)
    limits: ParseLimits = ParseLimits()
    cache: CacheSettings = CacheSettings()
    pool: PoolSettings = PoolSettings(max_size=8)
