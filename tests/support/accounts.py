"""Each service under its own accounts at both servers, as `make up` and Compose run them."""

import subprocess
import sys

from tests.support.stack import REPOSITORY, Stack, clean_environment


def service_of(module: str) -> str:
    """`services.agent_runner.main` is of the service agent_runner."""
    return module.split(".")[1]


def create_accounts(stack: Stack, database_url: str) -> None:
    """Makes the services' roles, and gives them their rights in this database."""
    done = subprocess.run(
        [sys.executable, "-m", "shared.db.migrate"],
        cwd=REPOSITORY,
        env={**clean_environment(), **stack.postgres.account_passwords(), "DATABASE_URL": database_url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def account_environment(stack: Stack, service: str, database_url: str, rabbitmq_url: str) -> dict[str, str]:
    """A service's own URLs of a database with accounts and of a virtual host."""
    return {
        "DATABASE_URL": stack.postgres.account_url(service, database_url.rsplit("/", 1)[1]),
        "RABBITMQ_URL": stack.rabbitmq.account_url(service, rabbitmq_url.rsplit("/", 1)[1]),
    }
