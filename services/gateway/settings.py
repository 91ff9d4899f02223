"""Settings of the gateway; every group can be set from the environment, as in CHATMIND_LIMITS__FILE_BYTES=1048576."""

from pydantic import BaseModel, Field

from shared.db.pool import PoolSettings
from shared.settings import CommonSettings

_MIB = 1024 * 1024


class LimitSettings(BaseModel):
    """What one request, session or tenant may ask for, and how much the whole system takes in."""

    json_bytes: int = Field(default=4 * _MIB, ge=1024, description="a JSON body")
    file_bytes: int = Field(default=50 * _MIB, ge=1, description="one uploaded file")
    upload_bytes: int = Field(default=256 * _MIB, ge=1, description="a whole upload request")
    files: int = Field(default=20, ge=1, description="files in one upload request")
    retries: int = Field(default=10_000, ge=1, description="failed documents that one request queues again")
    runs_per_session: int = Field(default=100, ge=1, description="unfinished runs of one session")
    runs_per_tenant: int = Field(default=10_000, ge=1, description="unfinished runs of one tenant")
    runs: int = Field(default=50_000, ge=1, description="unfinished runs of all tenants")
    documents_per_tenant: int = Field(default=50_000, ge=1, description="unfinished documents of one tenant")
    documents: int = Field(default=200_000, ge=1, description="unfinished documents of all tenants")


class LoadSettings(BaseModel):
    """What this gateway holds at once. Over it, requests are told to come again; times in seconds."""

    body_bytes: int = Field(default=256 * _MIB, ge=1, description="JSON bodies that are being received or answered")
    body_timeout: float = Field(default=30.0, gt=0, description="between two parts of a body, or of a file being sent")
    uploads: int = Field(default=32, ge=1, description="upload requests")
    uploads_per_tenant: int = Field(default=16, ge=1)
    uploads_stored: int = Field(default=4, ge=1, description="uploads that write to the database; the others wait")
    storing_timeout: float = Field(default=60.0, gt=0, description="waiting for other uploads to be written")
    downloads: int = Field(default=64, ge=1, description="files being sent, of each of which a part is in memory")
    downloads_per_tenant: int = Field(default=16, ge=1)
    turn_timeout: float = Field(default=5.0, gt=0, description="waiting for other requests of the same session")


class RateSettings(BaseModel):
    """Requests of one tenant, over all gateways together."""

    per_second: float = Field(default=2_000.0, ge=0, description="0: no limit")
    burst: int = Field(default=10_000, ge=1, description="requests at once after a pause")


class StreamSettings(BaseModel):
    """Event streams. Times in seconds."""

    poll_every: float = Field(default=1.0, gt=0, description="the guarantee behind hints")
    keep_alive: float = Field(default=15.0, gt=0)
    key_check_every: float = Field(default=30.0, gt=0, le=60)
    send_timeout: float = Field(default=10.0, gt=0)
    buffer_events: int = Field(default=256, ge=1, description="unsent events of one client before it is dropped")
    buffer_bytes: int = Field(default=_MIB, ge=1)
    buffer_bytes_in_all: int = Field(
        default=256 * _MIB, ge=1, description="unsent events of all clients of this gateway"
    )
    page_events: int = Field(default=256, ge=1, description="events of one read from the table")
    clients: int = Field(default=10_000, ge=1, description="open streams of this gateway")
    clients_per_tenant: int = Field(default=4_000, ge=1, description="open streams of one tenant at this gateway")


class GatewaySettings(CommonSettings):
    """Everything that the gateway can be told."""

    gateway_host: str = "127.0.0.1"
    gateway_port: int = Field(default=8000, ge=0, le=65535)
    # Waiting for a row holds a connection that others need.
    pool: PoolSettings = PoolSettings(max_size=16, lock_timeout=2.0, acquire_timeout=5.0)
    limits: LimitSettings = LimitSettings()
    load: LoadSettings = LoadSettings()
    rate: RateSettings = RateSettings()
    streams: StreamSettings = StreamSettings()
    key_cache_seconds: float = Field(default=5.0, ge=0, le=5, description="how long a revoked key may still work")
    idempotency_hours: float = Field(default=24.0, gt=0)
    search_seconds: float = Field(default=10.0, gt=0, description="deadline of a search")
    probe_seconds: float = Field(default=3.0, gt=0, description="time limit of a look at a model endpoint")
    probe_cache_seconds: float = Field(default=30.0, ge=0)
    graceful_seconds: int = Field(default=8, ge=1, description="for requests in flight at the end")
