"""Settings of the retrieval service. Times are in seconds."""

from pydantic import BaseModel, Field

from shared.db.pool import PoolSettings
from shared.settings import CommonSettings


class SearchSettings(BaseModel):
    """How wide a search looks before its results are cut."""

    max_concurrent: int = Field(default=32, ge=1, description="questions answered at once; the rest wait")
    candidates: int = Field(default=50, ge=50, description="hits taken from each list before they are fused")
    candidates_per_hit: int = Field(default=4, ge=1, description="and at least so many for each hit that was asked for")
    keyword_terms: int = Field(
        default=64, ge=1, le=256, description="terms of a question that keyword search looks for"
    )
    keyword_postings: int = Field(
        default=5_000,
        ge=1,
        description="occurrences that keyword search reads, rarest terms first, before it leaves terms out",
    )


class EmbeddingSettings(BaseModel):
    """How questions become vectors."""

    max_chars: int = Field(
        default=1_000, ge=1, description="how much of a question's beginning is embedded; keyword search sees all of it"
    )
    cache_size: int = Field(default=1_000, ge=0, description="questions whose vectors are kept in memory")
    retry_seconds: float = Field(default=5.0, ge=0, description="how long a failing embedding server is asked again")


class RetrievalSettings(CommonSettings):
    """Read from CHATMIND_* variables; groups by two underscores, such as CHATMIND_SEARCH__CANDIDATES."""

    search: SearchSettings = SearchSettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    pool: PoolSettings = PoolSettings(max_size=10)
