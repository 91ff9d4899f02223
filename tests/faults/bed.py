"""The bed: the whole system as processes on real servers, each of which a case may kill, cut off, pause or fill."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Literal

import asyncpg
import psutil

from services.gateway.store.api_keys import issue_key
from shared.db.queries import load_queries
from shared.ids import new_id
from tests.faults.client import Incident, TenantClient
from tests.faults.ledger import Ledger
from tests.faults.model import WishfulModel
from tests.faults.proxy import Proxy
from tests.faults.resources import Usage
from tests.faults.servers import ADDRESS_OF, models_file, password_of, tools_file
from tests.support.accounts import account_environment, create_accounts, service_of
from tests.support.embedding_server import EmbeddingServer
from tests.support.stack import ServiceProcess, Stack
from tests.support.waiting import eventually

MODULES = {
    "gateway-0": "services.gateway.main",
    "gateway-1": "services.gateway.main",
    "runner-0": "services.agent_runner.main",
    "runner-1": "services.agent_runner.main",
    "ingestion-0": "services.ingestion.main",
    "retrieval-0": "services.retrieval.main",
    "retrieval-1": "services.retrieval.main",
}
TENANTS = 3
READY_SECONDS = 90.0

SQL = load_queries(Path(__file__).with_name("bed.sql"))


class Bed:
    """`services` by name; `clients`, one a tenant, and `agents`, a plain one of each.

    The model, the ledger and the embeddings server live in this process."""

    def __init__(self, stack: Stack, rng: Random) -> None:
        self.stack = stack
        self.model = WishfulModel()
        self.ledger = Ledger()
        self.embeddings = EmbeddingServer(dimension=64)
        self.services: dict[str, ServiceProcess] = {}
        self.clients: list[TenantClient] = []
        self.agents: list[str] = []
        self.incidents: list[Incident] = []
        self.secrets: list[str] = []
        self.at_start: dict[str, Usage] = {}
        self.environment: dict[str, str] = {}
        self._rng = rng
        self._changed: set[str] = set()
        self._proxies: list[Proxy] = []

    @property
    def database_url(self) -> str:
        return self.environment["DATABASE_URL"]

    @property
    def vhost(self) -> str:
        return self.environment["RABBITMQ_URL"].rsplit("/", 1)[1]

    def names(self, kind: str) -> list[str]:
        """The services of a kind: gateway, runner, ingestion or retrieval."""
        return [name for name in self.services if name.startswith(kind)]

    async def prepare(self) -> None:
        """A database, a virtual host, the files that services read, and the processes."""
        directory = self.stack.directory
        (directory / "models.toml").write_text(models_file(self.model.base_url, self.embeddings))
        (directory / "tools.toml").write_text(tools_file(self.ledger.url))
        self.environment = {
            "DATABASE_URL": await asyncio.to_thread(self.stack.create_database),
            "RABBITMQ_URL": await asyncio.to_thread(self.stack.create_vhost),
            "CHATMIND_MODELS_FILE": str(directory / "models.toml"),
            "CHATMIND_TOOLS_FILE": str(directory / "tools.toml"),
            "SCRIPTED_KEY": f"sk-{new_id().hex}",
            "LEDGER_KEY": f"lk-{new_id().hex}",
        }
        await asyncio.to_thread(create_accounts, self.stack, self.database_url)
        await self.fetch(SQL["see_all_accounts"])
        for name, module in MODULES.items():
            environment = self._environment_of(module)
            self.services[name] = await asyncio.to_thread(self.stack.start_service, module, environment)
            self.secrets += [password_of(environment[variable]) for variable in ADDRESS_OF.values()]
        await self.ready()
        await self._issue_keys()
        for client in self.clients:
            agent = await client.create("/api/agents", {"name": "Guide", "model": "scripted"})
            self.agents.append(str(agent["id"]))

    async def _issue_keys(self) -> None:
        urls = [self.services[name].base_url for name in self.names("gateway")]
        connection = await self.connect()
        try:
            for number in range(TENANTS):
                key = await issue_key(connection, f"tenant-{number}", "faults")
                self.clients.append(TenantClient(f"tenant-{number}", key, urls, self._rng, self.incidents))
                self.secrets.append(key)
        finally:
            await connection.close()
        self.secrets += [self.environment["SCRIPTED_KEY"], self.environment["LEDGER_KEY"]]
        self.secrets += [password_of(self.environment[variable]) for variable in ADDRESS_OF.values()]

    def _environment_of(self, module: str) -> dict[str, str]:
        """As in production each service has accounts of its own, with its own rights."""
        urls = (self.database_url, self.environment["RABBITMQ_URL"])
        return {**self.environment, **account_environment(self.stack, service_of(module), *urls)}

    async def close(self) -> None:
        for client in self.clients:
            await client.close()

    async def connect(self) -> "asyncpg.Connection[asyncpg.Record]":
        """A connection past all proxies, as soon as the database serves."""

        async def attempt() -> "asyncpg.Connection[asyncpg.Record] | None":
            try:
                return await asyncpg.connect(self.database_url, timeout=5)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
                return None

        connection = await eventually(attempt, within=60, every=0.2)
        assert connection is not None
        return connection

    async def fetch(self, sql: str, *values: Any) -> list[asyncpg.Record]:
        """Rows of one statement."""
        connection = await self.connect()
        try:
            return await connection.fetch(sql, *values)
        finally:
            await connection.close()

    async def fetchval(self, sql: str, *values: Any) -> Any:
        """The first value of one statement."""
        rows = await self.fetch(sql, *values)
        return rows[0][0] if rows else None

    async def held_runs(self, name: str) -> list[str]:
        """The runs whose lease a runner holds."""
        ports = await asyncio.to_thread(_ports_of, self.services[name])
        return [row["run_id"] for row in await self.fetch(SQL["holders"]) if row["client_port"] in ports]

    async def holder_of(self, run_id: str, within: float = 30) -> str:
        """The runner that holds a run's lease, as soon as one does."""

        async def find() -> str | None:
            for name in self.names("runner"):
                if run_id in await self.held_runs(name):
                    return name
            return None

        name = await eventually(find, within=within)
        assert name is not None
        return name

    @staticmethod
    def now() -> datetime:
        """The time by the clock that the database has as well."""
        return datetime.now(UTC)

    async def resumed_after(self, run_id: str, fault_at: datetime) -> float:
        """Seconds from a fault to the next event of a run."""
        first = await self.fetchval(SQL["next_event"], run_id, fault_at)
        assert first is not None, f"run {run_id} did not go on"
        seconds: float = (first - fault_at).total_seconds()
        return seconds

    async def broker_version(self) -> str:
        """Of RabbitMQ."""
        return (await asyncio.to_thread(self.stack.rabbitmq.ctl, "version")).strip()

    async def queues(self) -> list[tuple[str, int, int, int]]:
        """Name, ready and unacknowledged messages, consumers of each queue; the broker's figures may be seconds old."""
        columns = ("name", "messages_ready", "messages_unacknowledged", "consumers")
        arguments = ("list_queues", "--vhost", self.vhost, "--no-table-headers", *columns)
        lines = (await asyncio.to_thread(self.stack.rabbitmq.ctl, *arguments)).splitlines()
        rows = (line.split("\t") for line in lines if line.strip())
        return [
            (name, int(ready), int(unacknowledged), int(consumers)) for name, ready, unacknowledged, consumers in rows
        ]

    async def kill(self, name: str) -> None:
        """SIGKILL, its subprocesses as well."""
        await asyncio.to_thread(self.services[name].kill)

    async def start(self, name: str, within: Sequence[str] = (), **environment: str) -> None:
        """Starts a process that has ended; with extra environment it is restarted without when the case is over."""
        if environment or within:
            self._changed.add(name)
        await asyncio.to_thread(self.services[name].start, environment, within)

    def changed(self, *names: str) -> None:
        """These services are restarted when the case is over."""
        self._changed.update(names)

    def ports(self) -> list[int]:
        """The servers that services connect to."""
        model = int(self.model.base_url.rsplit(":", 1)[1].split("/")[0])
        return [self.stack.rabbitmq.port, self.stack.postgres.port, model, self.ledger.port, self.embeddings.port]

    async def restart(self, name: str, **environment: str) -> None:
        """Kills a service, starts it with extra environment, and returns when it is ready."""
        await self.kill(name)
        await self.start(name, **environment)
        await self.ready(name)

    async def terminate(self, name: str, seconds: float = 60) -> int:
        """SIGTERM; the exit code."""
        return await asyncio.to_thread(self.services[name].terminate, seconds)

    async def died(self, *names: str, within: float = 30) -> None:
        """Returns when one of these processes has ended by itself."""

        async def is_dead() -> bool:
            return any(self.services[name].process.poll() is not None for name in names)

        await eventually(is_dead, within=within)

    async def ready(self, *names: str, within: float = READY_SECONDS) -> None:
        """Returns when these services, or all, answer /readyz with 200."""

        waiting = set(names or self.services)

        async def are_ready() -> bool:
            for name in sorted(waiting):
                if await asyncio.to_thread(self.services[name].is_ready):
                    waiting.discard(name)
            return not waiting

        try:
            await eventually(are_ready, within=within, every=0.1)
        except AssertionError:
            tails = "\n".join(f"{name}: {self.services[name].log_tail(3)}" for name in sorted(waiting))
            raise AssertionError(f"not ready within {within:g} s: {tails}") from None

    async def proxied(self, name: str, server: Literal["rabbitmq", "postgres"]) -> Proxy:
        """Restarts a service with a proxy between it and one of its servers."""
        variable, ports = (
            ADDRESS_OF[server],
            {"rabbitmq": self.stack.rabbitmq.port, "postgres": self.stack.postgres.port},
        )
        proxy = await Proxy(ports[server], speaks_postgres=server == "postgres").__aenter__()
        self._proxies.append(proxy)
        url = self._environment_of(MODULES[name])[variable].replace(f":{proxy.target}/", f":{proxy.port}/")
        await self.restart(name, **{variable: url})
        return proxy

    async def heal(self) -> None:
        """Everything as it was: servers up, services alive with their own environment, nothing damaged, no gate closed."""
        self.model.forget_wishes()
        self.ledger.open_gates()
        self.embeddings.answer = "right"
        self.embeddings.release()
        for server in (self.stack.postgres, self.stack.rabbitmq):
            if not server.is_running() or not await asyncio.to_thread(server.is_ready):
                await asyncio.to_thread(server.start)
        for name, service in self.services.items():
            if service.process.poll() is None:
                service.resume()
            if name in self._changed:
                await self.kill(name)
            if service.process.poll() is not None:
                await self.start(name)
        self._changed.clear()
        for proxy in self._proxies:
            await proxy.refuse()
        self._proxies.clear()
        await self.ready()


def _ports_of(service: ServiceProcess) -> set[int]:
    with contextlib.suppress(psutil.Error):
        return {connection.laddr.port for connection in psutil.Process(service.pid).net_connections(kind="tcp")}
    return set()


@asynccontextmanager
async def running_bed(stack: Stack, rng: Random) -> AsyncIterator[Bed]:
    """The bed on a stack that is up; ends its processes, not the stack."""
    bed = Bed(stack, rng)
    async with bed.model, bed.ledger, bed.embeddings:
        try:
            await bed.prepare()
            yield bed
        finally:
            await bed.close()
            for service in bed.services.values():
                await asyncio.to_thread(service.kill)
