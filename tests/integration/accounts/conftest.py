"""A database and a virtual host with the accounts of the services."""

from collections.abc import Iterator

import psycopg
import pytest

from tests.integration.accounts.privileges import Connection
from tests.support.accounts import create_accounts
from tests.support.stack import Stack


@pytest.fixture(scope="module")
def accounts_database_url(stack: Stack) -> Iterator[str]:
    """The owner's address of a database that was migrated with accounts."""
    url = stack.create_database(migrated=False)
    create_accounts(stack, url)
    yield url
    stack.drop_database(url)


@pytest.fixture
def owner(accounts_database_url: str) -> Iterator[Connection]:
    """The owner's connection; each test's changes are undone."""
    with psycopg.connect(accounts_database_url) as connection:
        yield connection
        connection.rollback()
