"""The accounts of the services: the same names in PostgreSQL and in RabbitMQ, with a password file for each server and service."""

from pathlib import Path

SERVICES = ("gateway", "agent_runner", "ingestion", "retrieval")


def account_name(service: str) -> str:
    """Under which a service logs in."""
    return f"chatmind_{service}"


def password_file(server_directory: Path, service: str = "") -> Path:
    """Where the password of a service at a server is kept, beside the server's directory; without a service its owner's."""
    parts = [server_directory.name, *([service] if service else []), "password"]
    return server_directory.with_name(".".join(parts))
