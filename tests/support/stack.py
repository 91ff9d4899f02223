"""The real PostgreSQL and RabbitMQ of a test session, and services as processes.

stack = start_stack()                                   # once a session, by a fixture
url = stack.create_database()                           # migrated, empty, ours alone
environment = {"DATABASE_URL": url, "RABBITMQ_URL": stack.create_vhost()}
gateway = stack.start_service("services.gateway.main", environment)
gateway.wait_ready(); gateway.base_url; gateway.kill(); gateway.start()
stack.rabbitmq.stop(); stack.rabbitmq.start()           # same port, same data
stack.stop()
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path

import psutil
import psycopg
import pytest
from psycopg import sql

from deploy.local.errors import StackError
from deploy.local.postgres import LocalPostgres
from deploy.local.processes import (
    MARK,
    end_processes,
    is_port_free,
    kill_processes,
    processes_under,
    wait_until,
)
from deploy.local.rabbitmq import LocalRabbitMQ, RabbitPorts
from deploy.local.rabbitmq_package import find_server

REPOSITORY = Path(__file__).resolve().parents[2]
DIRECTORY_PREFIX = "chatmind-tests-"
TEMPLATE_DATABASE = "migrated"
# Below the range from which the kernel takes the ports of outgoing connections.
PORTS = range(20000, 28000)
OF_THE_DEVELOPER = (
    "CHATMIND_",
    "DATABASE_URL",
    "RABBITMQ_URL",
    "RABBITMQ_NODE",
    "OPENAI_",
    "PYTHONDONTWRITEBYTECODE",  # services that tests start again and again compile once
    "DEEPSEEK_",
    "ZHIPU",
    "OLLAMA_",
)


def free_port() -> int:
    """A port of 127.0.0.1 that nothing listens on; one is not given twice by a process."""
    return next(_free_ports)


def _generate_free_ports() -> Iterator[int]:
    candidates = list(PORTS)
    random.shuffle(candidates)
    yield from (port for port in candidates if is_port_free(port))


_free_ports = _generate_free_ports()


def start_stack(*, durable: bool = False) -> "Stack":
    """A running stack; where RabbitMQ is not installed the tests are skipped, in CI they fail.

    A `durable` PostgreSQL syncs every commit to the disk, as in production; that of tests has no time for it.
    """
    try:
        find_server()
    except StackError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"needs a real RabbitMQ: {error}")
    _remove_abandoned_stacks()
    stack = Stack(Path(tempfile.mkdtemp(prefix=f"{DIRECTORY_PREFIX}{os.getpid()}-")), durable=durable)
    try:
        stack.start()
    except BaseException:
        stack.stop()
        raise
    return stack


class Stack:
    """PostgreSQL and RabbitMQ below one temporary directory, which `stop` removes."""

    def __init__(self, directory: Path, *, durable: bool = False) -> None:
        self.directory = directory
        self.postgres = LocalPostgres(directory / "postgres", free_port(), durable=durable)
        self.rabbitmq = LocalRabbitMQ(directory / "rabbitmq", RabbitPorts(free_port(), free_port(), free_port()))
        self._numbers = count(1)
        self._template_url = ""

    def start(self) -> None:
        self.postgres.start()
        self.rabbitmq.start()

    def stop(self) -> None:
        """Ends every process of this stack, services included."""
        kill_processes(processes_under(self.directory / "services"))
        self.rabbitmq.kill()
        self.postgres.kill()
        shutil.rmtree(self.directory)

    def create_database(self, *, migrated: bool = True) -> str:
        """The URL of a new database, with the current schema unless `migrated` is False."""
        if not migrated:
            return self._create_database(f"test_{next(self._numbers)}", "template1")
        if not self._template_url:
            template_url = self._create_database(TEMPLATE_DATABASE, "template1")
            migrate(template_url)
            self._template_url = template_url
        return self._create_database(f"test_{next(self._numbers)}", TEMPLATE_DATABASE)

    def drop_database(self, url: str) -> None:
        """Closes the connections to a database of `create_database` and removes it."""
        drop = sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(url.rsplit("/", 1)[1]))
        with psycopg.connect(self.postgres.url, autocommit=True) as connection:
            while True:
                try:
                    connection.execute(drop)
                    return
                except psycopg.errors.InsufficientPrivilege:
                    time.sleep(0.1)  # autovacuum is at work there: it is nobody's to end, and will be done soon

    def create_vhost(self) -> str:
        """The URL of a new virtual host of RabbitMQ; its name is the last part of the URL."""
        return self.rabbitmq.create_vhost(f"test{next(self._numbers)}")

    def start_service(self, module: str, environment: Mapping[str, str]) -> "ServiceProcess":
        """Runs `python -m module` on a free port; see ServiceProcess.wait_ready."""
        service = ServiceProcess(module, environment, self.directory / "services", next(self._numbers))
        service.start()
        return service

    def _create_database(self, name: str, template: str) -> str:
        with psycopg.connect(self.postgres.url, autocommit=True) as connection:
            connection.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
            )
        return self.postgres.database_url(name)


class ServiceProcess:
    """One service as a process of the operating system, to be killed, paused and started again on the same port."""

    def __init__(self, module: str, environment: Mapping[str, str], directory: Path, number: int) -> None:
        directory.mkdir(exist_ok=True)
        self.module = module
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}"
        self.log_file = directory / f"{module.rsplit('.', 2)[-2]}-{number}.log"
        is_gateway = module.startswith("services.gateway")
        self._environment = {
            **clean_environment(),
            "PYTHONUNBUFFERED": "1",
            "CHATMIND_GATEWAY_HOST": "127.0.0.1",
            "CHATMIND_GATEWAY_PORT" if is_gateway else "CHATMIND_HEALTH_PORT": str(self.port),
            MARK: str(directory.resolve()),
            **environment,
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "start() comes first"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    def start(self, extra: Mapping[str, str] | None = None, within: Sequence[str] = ()) -> None:
        """Starts it, for the first time or again; does not wait until it serves.

        `extra` environment counts until the next start; `within` is a command that runs it, such as one that enters a namespace.
        """
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [*within, sys.executable, "-m", self.module],
                cwd=REPOSITORY,
                env={**self._environment, **(extra or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.base_url}/readyz", timeout=2) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def wait_ready(self, seconds: float = 30) -> None:
        """Returns when GET /readyz answers 200; fails with the end of the log when it ends or takes longer."""
        wait_until(lambda: self.process.poll() is not None or self.is_ready(), seconds)
        if self.process.poll() is not None or not self.is_ready():
            pytest.fail(f"{self.module} is not ready (exit code {self.process.poll()}):\n{self.log_tail()}")

    def kill(self) -> None:
        """SIGKILL, to its subprocesses as well."""
        kill_processes([psutil.Process(self.pid)] if self.process.poll() is None else [])
        self.process.wait()

    def terminate(self, seconds: float = 30) -> int:
        """SIGTERM; the exit code."""
        self.process.terminate()
        return self.process.wait(seconds)

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def log_tail(self, lines: int = 30) -> str:
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])


def migrate(database_url: str) -> None:
    """Brings a database to the current schema, as an operator would."""
    done = subprocess.run(
        [sys.executable, "-m", "shared.db.migrate"],
        cwd=REPOSITORY,
        env={**clean_environment(), "DATABASE_URL": database_url},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"the migration failed:\n{done.stdout}{done.stderr}")


def clean_environment() -> dict[str, str]:
    """The inherited environment without what would configure a service: tests reach no broker, key or model of yours."""
    return {name: value for name, value in os.environ.items() if not name.startswith(OF_THE_DEVELOPER)}


def _remove_abandoned_stacks() -> None:
    """Ends what a test session left behind that was killed itself."""
    for directory in Path(tempfile.gettempdir()).glob(f"{DIRECTORY_PREFIX}*"):
        owner = directory.name.removeprefix(DIRECTORY_PREFIX).split("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            end_processes(processes_under(directory), grace_seconds=2)
            shutil.rmtree(directory, ignore_errors=True)
