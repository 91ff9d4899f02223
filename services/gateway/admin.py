"""Keys from the command line: `python -m services.gateway.admin issue-key --tenant default --name local`.

`issue-key` prints a new key, which nothing can show again; with `--expires-in-days` it ends by itself. `check-key` and `revoke-key` read a
key from stdin or from `--file`, so that it appears in no list of processes; they exit with 0 when the key works (or was revoked just now),
else with 1.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import asyncpg

from services.gateway.store.api_keys import is_valid, issue_key, revoke_key
from shared.db.pool import DATABASE_TROUBLE, Connection

_MAX_NAME = 200
_MAX_DAYS = 36_500


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit code: 0 done, 1 no, 2 not configured or not reachable."""
    options = _parser().parse_args(arguments)
    try:
        key = _read_key(options)
    except OSError as error:
        sys.stderr.write(f"the key can't be read: {error}\n")
        return 2
    database_url = os.environ.get("DATABASE_URL")
    if not database_url:
        sys.stderr.write("DATABASE_URL is not set\n")
        return 2
    try:
        return asyncio.run(_with_connection(database_url, lambda connection: _run(connection, options, key)))
    except (*DATABASE_TROUBLE, asyncpg.PostgresError) as error:
        sys.stderr.write(f"the database can't be used: {error}\n")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m services.gateway.admin", description="Manages API keys.")
    commands = parser.add_subparsers(dest="command", required=True)
    issue = commands.add_parser("issue-key", help="print a new key, and make its tenant when it is new")
    issue.add_argument("--tenant", required=True, type=_name)
    issue.add_argument("--name", required=True, type=_name, help="what the key is for")
    issue.add_argument(
        "--expires-in-days", type=_days, metavar="N", help="without it the key works until it is revoked"
    )
    for command, what in (("check-key", "exit with 0 when a key works"), ("revoke-key", "end a key")):
        other = commands.add_parser(command, help=what)
        other.add_argument("--file", type=Path, help="a file that holds the key, instead of stdin")
    return parser


def _name(value: str) -> str:
    if not value.strip() or len(value) > _MAX_NAME or not value.isprintable():
        raise argparse.ArgumentTypeError("1 to 200 printable characters")
    return value


def _days(value: str) -> timedelta:
    days = float(value)
    if not 0 < days <= _MAX_DAYS:
        raise argparse.ArgumentTypeError(f"more than 0 and at most {_MAX_DAYS:,} days")
    return timedelta(days=days)


async def _with_connection(database_url: str, use: Callable[[Connection], Awaitable[int]]) -> int:
    connection = await asyncpg.connect(database_url, timeout=10)
    try:
        async with connection.transaction():
            return await use(connection)
    finally:
        await connection.close()


def _read_key(options: argparse.Namespace) -> str:
    if options.command == "issue-key":
        return ""
    text: str = options.file.read_text() if options.file else sys.stdin.read()
    return text.strip()


async def _run(connection: Connection, options: argparse.Namespace, key: str) -> int:
    if options.command == "issue-key":
        key = await issue_key(connection, options.tenant, options.name, options.expires_in_days)
        sys.stdout.write(f"{key}\n")
        return 0
    if options.command == "check-key":
        return 0 if await is_valid(connection, key) else 1
    return 0 if await revoke_key(connection, key) else 1


if __name__ == "__main__":
    raise SystemExit(main())
