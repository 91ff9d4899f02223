"""The cases, a module a group."""

from tests.faults.cases import (
    accounts,
    broker,
    cancelling,
    capacity,
    clients,
    database,
    messages,
    models,
    obedience,
    requests,
    runners,
    security,
    services,
    storage,
    strings,
    tools,
)

__all__ = [
    "accounts",
    "broker",
    "cancelling",
    "capacity",
    "clients",
    "database",
    "messages",
    "models",
    "obedience",
    "requests",
    "runners",
    "security",
    "services",
    "storage",
    "strings",
    "tools",
]
