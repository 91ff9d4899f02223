"""Where the embedded stack listens and keeps its state. Every field is an environment variable, see `.env.example`."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

REPOSITORY = Path(__file__).resolve().parents[2]
Port = Annotated[int, Field(ge=1, le=65535)]


class StackSettings(BaseSettings):
    """A URL that is set stands for a server that somebody else runs: the stack uses it and starts none of its own."""

    model_config = SettingsConfigDict(env_prefix="CHATMIND_", extra="ignore")

    state_dir: Path = REPOSITORY / ".local"
    models_file: Path = Path("models.toml")
    tools_file: Path = Path("tools.toml")

    gateway_host: str = "127.0.0.1"
    gateway_port: Port = 8000
    offline_model_port: Port = 8390
    embeddings_port: Port = 8391
    postgres_port: Port = 8392
    rabbitmq_port: Port = 8393
    rabbitmq_distribution_port: Port = 8394
    rabbitmq_epmd_port: Port = 8395
    agent_runner_port: Port = 8396  # health
    ingestion_port: Port = 8397  # health
    retrieval_port: Port = 8398  # health

    database_url: SecretStr | None = Field(default=None, validation_alias="DATABASE_URL")
    rabbitmq_url: SecretStr | None = Field(default=None, validation_alias="RABBITMQ_URL")
    embeddings_url: str | None = None
    offline_model_url: str | None = None

    @property
    def api_url(self) -> str:
        host = "127.0.0.1" if self.gateway_host in {"0.0.0.0", "::"} else self.gateway_host  # noqa: S104 - compared only
        return f"http://{host}:{self.gateway_port}"

    @property
    def logs(self) -> Path:
        return self.state_dir / "logs"

    @property
    def api_key_file(self) -> Path:
        return self.state_dir / "api_key"

    @property
    def api_url_file(self) -> Path:
        return self.state_dir / "api_url"
