"""Settings from the environment. One class a group, built in `main` and passed in; there is no global settings object."""

import sys
from pathlib import Path
from typing import TypeVar

from pydantic import Field, PostgresDsn, SecretStr, TypeAdapter, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

SettingsT = TypeVar("SettingsT", bound=BaseSettings)


class CommonSettings(BaseSettings):
    """What every service needs. The two URLs carry passwords and are never shown."""

    model_config = SettingsConfigDict(
        env_prefix="CHATMIND_",
        env_nested_delimiter="__",
        nested_model_default_partial_update=True,  # one value of a group leaves the service's other defaults alone
        extra="ignore",
    )

    database_url: SecretStr = Field(validation_alias="DATABASE_URL")
    rabbitmq_url: SecretStr = Field(validation_alias="RABBITMQ_URL")
    models_file: Path = Path("models.toml")
    tools_file: Path = Path("tools.toml")
    log_level: str = "info"
    health_host: str = "127.0.0.1"
    health_port: int = Field(default=0, ge=0, le=65535, description="0: no health endpoint")

    @field_validator("database_url")
    @classmethod
    def _is_postgres(cls, value: SecretStr) -> SecretStr:
        TypeAdapter(PostgresDsn).validate_python(value.get_secret_value())
        return value

    @field_validator("log_level")
    @classmethod
    def _is_level(cls, value: str) -> str:
        if value.lower() not in {"debug", "info", "warning", "error"}:
            raise ValueError("one of debug, info, warning, error")
        return value.lower()


def load_settings(settings_class: type[SettingsT]) -> SettingsT:
    """Reads the environment; a missing or wrong value ends the process at once (exit code 2), named, without the value itself."""
    try:
        return settings_class()
    except ValidationError as error:
        for item in error.errors(include_input=False, include_url=False):
            sys.stderr.write(f"setting {'.'.join(str(part) for part in item['loc'])}: {item['msg']}\n")
        raise SystemExit(2) from None
