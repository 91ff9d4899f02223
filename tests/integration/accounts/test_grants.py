"""Each service's role has the rights that its statements need: none is missing, none is too much."""

import psycopg
import pytest

from shared.db.accounts import SERVICES, apply_accounts, role_of
from tests.integration.accounts.privileges import Connection, granted, needed, refused, statements_of, users_of
from tests.integration.spine.statements import STATEMENTS
from tests.support.accounts import create_accounts
from tests.support.stack import Stack


def test_every_statement_has_a_service() -> None:
    assert {service for name in STATEMENTS for service in users_of(name)} == set(SERVICES)


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_has_exactly_the_rights_that_its_statements_need(owner: Connection, service: str) -> None:
    has, wants = granted(owner, service), needed(owner, service)
    missing = "\n".join(f"missing: {right} to {role_of(service)}" for right in sorted(wants - has))
    superfluous = "\n".join(f"not needed: {right} by {role_of(service)}" for right in sorted(has - wants))
    assert has == wants, f"mend shared/db/migrations/accounts.sql:\n{missing}\n{superfluous}"
    assert len(has) > 20
    assert refused(owner, service, statements_of(service, owner)) == []


def test_a_statement_without_its_right_is_noticed(owner: Connection) -> None:
    owner.execute("REVOKE UPDATE ON run FROM chatmind_agent_runner")
    found = refused(owner, "agent_runner", statements_of("agent_runner", owner))
    assert any("permission denied for table run" in line for line in found)


def test_applying_twice_changes_nothing(owner: Connection) -> None:
    before = {service: granted(owner, service) for service in SERVICES}
    apply_accounts(owner, {})
    assert {service: granted(owner, service) for service in SERVICES} == before


def test_a_right_that_was_given_by_hand_is_taken_at_the_next_migration(
    stack: Stack, accounts_database_url: str
) -> None:
    with psycopg.connect(accounts_database_url) as connection:
        connection.execute("GRANT SELECT ON api_key TO chatmind_retrieval")
    create_accounts(stack, accounts_database_url)
    with psycopg.connect(accounts_database_url) as connection:
        assert not [right for right in granted(connection, "retrieval") if right.object == "api_key"]


def test_passwords_reach_the_server_as_verifiers(stack: Stack, accounts_database_url: str) -> None:
    """Even a server that logs every statement never sees one."""
    passwords = stack.postgres.account_passwords().values()
    with psycopg.connect(accounts_database_url, autocommit=True) as connection:
        connection.execute("ALTER ROLE chatmind_gateway NOLOGIN")  # something to log, for the comparison below
    log_before = stack.postgres.log_file.read_text(errors="replace")
    create_accounts(stack, accounts_database_url)
    assert not any(
        password in log_before + stack.postgres.log_file.read_text(errors="replace") for password in passwords
    )
    with psycopg.connect(stack.postgres.account_url("gateway", accounts_database_url.rsplit("/", 1)[1])) as connection:
        assert connection.info.user == "chatmind_gateway"
