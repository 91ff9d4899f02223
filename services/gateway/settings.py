"""Settings of the gateway; every group can be set from the environment, as in CHATMIND_LIMITS__FILE_BYTES=1048576."""

from pydantic import BaseModel, Field

from shared.db.pool import PoolSettings
from shared.settings import CommonSettings

_MIB = 1024 * 1024


class LimitSettings(BaseModel):
    """What one request, session or tenant may ask for."""

    json_bytes: int = Field(default=4 * _MIB, ge=1024, description="a JSON body")
    file_bytes: int = Field(default=50 * _MIB, ge=1, description="one uploaded file")
    upload_bytes: int = Field(default=256 * _MIB, ge=1, description="a whole upload request")
    files: int = Field(default=20, ge=1, description="files in one upload request")
    runs_per_session: int = Field(default=100, ge=1, description="unfinished runs of one session")
    runs_per_tenant: int = Field(default=10_000, ge=1, description="unfinished runs of one tenant")


class StreamSettings(BaseModel):
    """Event streams. Times in seconds."""

    poll_every: float = Field(default=1.0, gt=0, description="the guarantee behind hints")
    keep_alive: float = Field(default=15.0, gt=0)
    key_check_every: float = Field(default=30.0, gt=0, le=60)
    send_timeout: float = Field(default=10.0, gt=0)
    buffer_events: int = Field(default=256, ge=1, description="unsent events of one client before it is dropped")
    buffer_bytes: int = Field(default=_MIB, ge=1)
    page_events: int = Field(default=256, ge=1, description="events of one read from the table")


class GatewaySettings(CommonSettings):
    """Everything that the gateway can be told."""

    gateway_host: str = "127.0.0.1"
    gateway_port: int = Field(default=8000, ge=0, le=65535)
    pool: PoolSettings = PoolSettings(
        max_size=16, lock_timeout=2.0
    )  # waiting for a row holds a connection that others need
    limits: LimitSettings = LimitSettings()
    streams: StreamSettings = StreamSettings()
    key_cache_seconds: float = Field(default=5.0, ge=0, le=5, description="how long a revoked key may still work")
    idempotency_hours: float = Field(default=24.0, gt=0)
    search_seconds: float = Field(default=10.0, gt=0, description="deadline of a search")
    probe_seconds: float = Field(default=3.0, gt=0, description="time limit of a look at a model endpoint")
    probe_cache_seconds: float = Field(default=30.0, ge=0)
    graceful_seconds: int = Field(default=8, ge=1, description="for requests in flight at the end")
