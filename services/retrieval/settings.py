"""Settings of the retrieval service. Times are in seconds."""

from pydantic import BaseModel, Field

from shared.contracts.questions import RerankMode
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
    exact_chunks: int = Field(
        default=5_000,
        ge=1,
        description="chunks that a filter lets through and that are searched exactly, without an index",
    )
    rerank: RerankMode = Field(default="lexical", description="how hybrid searches are reranked unless they say")
    rerank_candidates: int = Field(default=50, ge=1, le=200, description="how many of the first hits are reranked")
    rerank_share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="part of the time left that reranking may take before its order is done without",
    )
    embedding_share: float = Field(
        default=0.5, gt=0, le=1, description="part of the time left after which a hybrid search does without vectors"
    )
    embedding_rest: float = Field(
        default=2.0,
        ge=0,
        description="how long hybrid and keyword searches do without an embedding model that failed, before one tries again",
    )

    def limit(self, top_k: int) -> int:
        """How long the lists are that are fused for so many hits."""
        return max(self.candidates, self.candidates_per_hit * top_k)


class EmbeddingSettings(BaseModel):
    """How questions become vectors."""

    max_chars: int = Field(
        default=1_000, ge=1, description="how much of a question's beginning is embedded; keyword search sees all of it"
    )
    cache_size: int = Field(default=1_000, ge=0, description="questions whose vectors are kept in memory")
    retry_seconds: float = Field(default=1.0, ge=0, description="how long a failing embedding server is asked again")


class RetrievalSettings(CommonSettings):
    """Read from CHATMIND_* variables; groups by two underscores, such as CHATMIND_SEARCH__CANDIDATES."""

    search: SearchSettings = SearchSettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    pool: PoolSettings = PoolSettings(max_size=10)
