"""Which rights the statements of a service need, found by taking rights away, and which ones its role has.

EXPLAIN checks permissions as executing does, and changes nothing; bodies of functions are only checked when they run, so functions are
called, in a transaction that is rolled back.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import psycopg
from psycopg import sql

from shared.db.accounts import role_of
from tests.integration.spine.statements import STATEMENTS

Connection = psycopg.Connection[Any]

# Who uses the statements of `shared`; those of a service's own folder are its own.
USERS = {
    "shared/outbox.sql": ("gateway", "agent_runner", "ingestion"),
    "shared/documents.sql": ("gateway", "ingestion"),
    "shared/generations.sql": ("gateway", "ingestion"),
    "shared/stuck.sql": ("agent_runner", "ingestion"),
    "shared/conversation.sql": ("gateway",),
    "shared/conversation.sql claim_runs": ("agent_runner",),
    "shared/conversation.sql advance_run": ("gateway", "agent_runner"),
    "shared/conversation.sql lock_unfinished_run": ("gateway", "agent_runner"),
    "shared/conversation.sql find_started_steps": ("gateway", "agent_runner"),
}

EVERY_RIGHT = """
SELECT a.attrelid::regclass::text, a.attname::text, right_name FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE']) AS right_name
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v') AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT oid::regclass::text, '', 'DELETE' FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
UNION ALL
SELECT oid::regprocedure::text, '', 'EXECUTE' FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND proowner = current_user::regrole
AND prorettype <> 'trigger'::regtype
"""
GRANTED = f"""
SELECT e.* FROM ({EVERY_RIGHT}) AS e (object, attribute, right_name)
WHERE CASE right_name
    WHEN 'EXECUTE' THEN has_function_privilege(%(role)s, object, 'EXECUTE')
    WHEN 'DELETE' THEN has_table_privilege(%(role)s, object, 'DELETE')
    ELSE has_column_privilege(%(role)s, object, attribute, right_name) END
"""
FUNCTIONS = """
SELECT proname, (SELECT string_agg(format('NULL::%s', argument::regtype), ', ') FROM unnest(proargtypes) AS argument)
FROM pg_proc
WHERE pronamespace = 'public'::regnamespace AND proowner = current_user::regrole
AND prorettype <> 'trigger'::regtype
"""


@dataclass(frozen=True, order=True)
class Right:
    """One right on a column, or with an empty attribute on a table or function."""

    object: str
    attribute: str
    name: str

    def __str__(self) -> str:
        return f"{self.name}{f' ({self.attribute})' if self.attribute else ''} on {self.object}"


def users_of(name: str) -> tuple[str, ...]:
    """The services that execute a statement, by its name in STATEMENTS."""
    path = name.split(maxsplit=1)[0]
    if path.startswith("services/"):
        return (path.split("/")[1],)
    return USERS[name] if name in USERS else USERS[path]


def statements_of(service: str, connection: Connection) -> dict[str, str]:
    """What a service executes, by name: EXPLAINs of its statements, and calls of the functions that these name."""
    own = {name: text for name, text in STATEMENTS.items() if service in users_of(name)}
    found = {name: f"EXPLAIN (GENERIC_PLAN) {text}" for name, text in own.items()}
    for function, arguments in connection.execute(FUNCTIONS).fetchall():
        if any(re.search(rf"\b{function}\b", text) for text in own.values()):
            found[f"{function}()"] = f"SELECT {function}({arguments or ''})"
    return found


def refused(connection: Connection, service: str, statements: dict[str, str]) -> list[str]:
    """The statements that the service's role may not execute, with what the server says."""
    found = []
    with _as_role(connection, service):
        for name, text in statements.items():
            try:
                with connection.transaction(force_rollback=True):
                    connection.execute(text.encode())
            except psycopg.errors.InsufficientPrivilege as error:
                found.append(f"{name}: {error.diag.message_primary}")
    return found


@contextmanager
def _as_role(connection: Connection, service: str) -> Iterator[None]:
    role = sql.Identifier(role_of(service))
    with connection.transaction(force_rollback=True):
        connection.execute(sql.SQL("GRANT {} TO CURRENT_USER WITH INHERIT FALSE, SET TRUE").format(role))
        connection.execute(sql.SQL("SET LOCAL ROLE {}").format(role))
        yield


def granted(connection: Connection, service: str) -> set[Right]:
    """The rights of a service's role, column by column."""
    return {Right(*row) for row in connection.execute(GRANTED, {"role": role_of(service)}).fetchall()}


def needed(connection: Connection, service: str) -> set[Right]:
    """The rights without which a statement of the service is refused. Where one of several would do, one that is granted is named."""
    statements = statements_of(service, connection)
    every = {Right(*row) for row in connection.execute(EVERY_RIGHT).fetchall()}
    has = granted(connection, service)
    with connection.transaction(force_rollback=True):
        # Column by column from here on, so that each can be taken away.
        _change(connection, "REVOKE", service, {Right(right.object, "", "ALL") for right in every if right.attribute})
        _change(
            connection,
            "GRANT",
            service,
            has | {Right(right.object, "ctid", "SELECT") for right in every if right.name == "DELETE"},
        )
        if not refused(connection, service, statements):
            every = has
        _change(connection, "GRANT", service, every)
        assert refused(connection, service, statements) == []
        for group in [
            *_groups(every - has),
            *([right] for right in sorted(every - has)),
            *([right] for right in sorted(has)),
        ]:
            taken = every & set(group)
            _change(connection, "REVOKE", service, taken)
            if refused(connection, service, _that_may_need(group[0], statements)):
                _change(connection, "GRANT", service, taken)
            else:
                every = every - taken
    return every


def _groups(rights: set[Right]) -> list[list[Right]]:
    """By object and kind: most objects are none of a service's business, and go at once."""
    ordered = sorted(rights, key=lambda right: (right.object, right.name))
    return [list(group) for _, group in groupby(ordered, key=lambda right: (right.object, right.name))]


def _that_may_need(right: Right, statements: dict[str, str]) -> dict[str, str]:
    """Those that name the object, or a function that may use it."""
    word = re.compile(rf"\b{re.escape(right.object.split('(')[0])}\b|_json\b|\bwake_next_run\b|EXPLAIN.*\bstuck\b")
    return {name: text for name, text in statements.items() if word.search(text) or name.endswith("()")}


def _change(connection: Connection, verb: str, service: str, rights: Iterable[Right]) -> None:
    way = "TO" if verb == "GRANT" else "FROM"
    for right in rights:
        columns = f' ("{right.attribute}")' if right.attribute else ""
        kind = "FUNCTION " if right.name == "EXECUTE" else ""
        connection.execute(f"{verb} {right.name}{columns} ON {kind}{right.object} {way} {role_of(service)}".encode())
