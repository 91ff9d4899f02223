"""The agent-runner's settings and limits."""

from pydantic import BaseModel, Field

from shared.db.pool import PoolSettings
from shared.jobs import JobSettings
from shared.leases import LeaseSettings
from shared.settings import CommonSettings


class ToolSettings(BaseModel):
    """Limits of one tool call."""

    timeout: float = Field(default=30.0, gt=0, description="seconds")
    retrieval_deadline: float = Field(
        default=10.0, gt=0, description="seconds a question to retrieval may take, both tries together"
    )
    questions_in_flight: int = Field(default=32, ge=1)
    max_result_chars: int = Field(default=262_144, ge=1)


class RewritingSettings(BaseModel):
    """Limits of the model call that rewrites a query. Where it fails, the query is searched for as it is."""

    timeout: float = Field(default=8.0, gt=0, description="seconds, waiting for a free slot of the model included")
    history_tokens: int = Field(default=1_000, ge=0, description="estimated tokens of the conversation that are shown")
    max_tokens: int = Field(default=256, ge=1, description="of the model's reply; a thinking model needs more")
    max_query_chars: int = Field(
        default=500, ge=1, description="a longer query is left as it is, a longer wording not taken"
    )


class MemorySettings(BaseModel):
    """What of a session's history the model sees."""

    history_tokens: int = Field(default=8_000, ge=0, description="estimated tokens of earlier messages")
    max_messages: int = Field(default=400, ge=1, description="messages read from the database")


class RunnerSettings(CommonSettings):
    """Everything, from CHATMIND_ variables; nested values as CHATMIND_LEASE__LEASE=30."""

    jobs: JobSettings = JobSettings()
    delta_interval: float = Field(default=0.06, ge=0, description="seconds of text gathered into one message.delta")
    pool: PoolSettings = PoolSettings(max_size=16)
    lease: LeaseSettings = LeaseSettings()
    tools: ToolSettings = ToolSettings()
    rewriting: RewritingSettings = RewritingSettings()
    memory: MemorySettings = MemorySettings()
