"""One database account a service, with the rights that its statements need and no others: migrations/accounts.sql.

The owner of the database migrates it; services log in as `chatmind_gateway`, `chatmind_agent_runner` and so on. Where these roles don't
exist, as on a developer's own server, all of ChatMind uses the owner's account and nothing here happens.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

SERVICES = ("gateway", "agent_runner", "ingestion", "retrieval")

Connection = psycopg.Connection[Any]

_HEADER = re.compile(r"^-- section: (\w+)$", re.MULTILINE)
_parts = _HEADER.split((Path(__file__).parent / "migrations" / "accounts.sql").read_text())
_SECTIONS = dict(zip(_parts[1::2], (part.encode() for part in _parts[2::2]), strict=True))


def role_of(service: str) -> str:
    """The name under which a service logs in."""
    return f"chatmind_{service}"


def password_variable(service: str) -> str:
    """The environment variable in which the migrator finds the password of a service's role."""
    return f"CHATMIND_{service.upper()}_DATABASE_PASSWORD"


def passwords_in(environment: Mapping[str, str]) -> dict[str, str]:
    """The passwords that are set, by service."""
    passwords = {service: environment.get(password_variable(service), "") for service in SERVICES}
    return {service: password for service, password in passwords.items() if password}


def apply_accounts(connection: Connection, passwords: Mapping[str, str]) -> None:
    """Makes the roles of these services where they are missing, sets their passwords, and gives each role that exists its rights anew.

    Belongs into the migrating transaction, so that no service meets a new table without its rights. The connection's role must own the
    database, and have CREATEROLE when passwords are given.
    """
    present = _present_roles(connection)
    for service, password in passwords.items():
        if role_of(service) not in present:
            connection.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(role_of(service))))
        _set_password(connection, role_of(service), password)
    present |= {role_of(service) for service in passwords}
    if present:
        connection.execute(_SECTIONS["revoke"])
    for service in SERVICES:
        if role_of(service) in present:
            connection.execute(_SECTIONS[service])


def _present_roles(connection: Connection) -> set[str]:
    return {row[0] for row in connection.execute(_SECTIONS["present"])} & {role_of(service) for service in SERVICES}


def _set_password(connection: Connection, role: str, password: str) -> None:
    """Sends a verifier that is computed here: the password itself is in no statement that the server could log."""
    verifier = connection.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode()
    statement = sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(role), sql.Literal(verifier))
    connection.execute(statement)
