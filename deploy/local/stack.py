"""Bringing the embedded stack up and down."""

import fcntl
import hashlib
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from deploy.local.api_key import ensure_api_key, run_module
from deploy.local.errors import StackError
from deploy.local.port_check import check_ports
from deploy.local.processes import POLL_SECONDS, end_processes, processes_under
from deploy.local.programs import Program, Programs, list_programs, list_servers
from deploy.local.rabbitmq_package import ensure_installed
from deploy.local.secret_files import write_secret
from deploy.local.settings import REPOSITORY, StackSettings
from deploy.local.supervision import Supervisor
from shared.model_registry import RegistryError, load_registry
from shared.tool_registry import ToolsFileError, load_tool_registry

READY_SECONDS = 180.0
MOST_STARTS = 2
# The rest of the environment (terminal, directory, ...) says nothing about how the services should run.
RELEVANT_VARIABLES = ("CHATMIND_", "DATABASE_URL", "RABBITMQ_")
RELEVANT_ENDINGS = ("_API_KEY", "_BASE_URL", "_URL")

Reporter = Callable[[str], None]


class EmbeddedStack:
    """PostgreSQL, RabbitMQ, the two model servers and the four services of one state directory."""

    def __init__(self, settings: StackSettings, report: Reporter) -> None:
        self.settings = settings
        self.supervisor = Supervisor(settings.state_dir)
        self._report = report

    @cached_property
    def _plan(self) -> Programs:
        return list_programs(self.settings)

    def up(self) -> None:
        """Returns when every service is ready; harmless when all of it runs, and a restart when its settings changed."""
        if self.settings.rabbitmq_url is None:
            ensure_installed()
        self._check_files()
        with self._exclusive():
            self._up()

    def _check_files(self) -> None:
        """What services would refuse to start with is said here, before anything is started or stopped."""
        environment = {**os.environ, **self._plan.variables}
        try:
            load_registry(REPOSITORY / self.settings.models_file, environment)
            load_tool_registry(REPOSITORY / self.settings.tools_file, environment)
        except (RegistryError, ToolsFileError) as error:
            raise StackError(str(error), "mend it, then `make up` again") from None

    def down(self) -> None:
        """Stops everything in order. What a killed supervisord left behind is found and ended as well."""
        with self._exclusive():
            self._down()

    def _up(self) -> None:
        if self.supervisor.is_running() and self._is_outdated():
            self._report("the settings have changed: restarting")
            self._down()
        if not self.supervisor.is_running():
            self._start_supervisor()
        databases = [program for program in self._plan.programs if program.name == "postgres"]
        services = [program for program in self._plan.programs if program.is_service]
        others = [program for program in self._plan.programs if program not in databases + services]
        self._start(databases + others)
        self._wait_ready(databases)
        self._report("migrating the database")
        run_module(["shared.db.migrate"], {**self._plan.variables, **self._plan.owner_variables})
        self._start(services)  # they load and wait while RabbitMQ, the slowest of all, starts
        self._wait_ready(others)
        self._wait_ready(services)
        if ensure_api_key(self.settings, self._plan.of("gateway")):
            self._report(f"a new API key is in {self.settings.api_key_file}")
        self.settings.api_url_file.write_text(f"{self.settings.api_url}\n")

    def _down(self) -> None:
        if self.supervisor.is_running():
            self._report("stopping")
            self.supervisor.shut_down()
        self._end_leftovers()

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """One at a time: a second `make up` waits for the first and finds its work done."""
        self.settings.state_dir.mkdir(parents=True, exist_ok=True)
        with (self.settings.state_dir / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _start_supervisor(self) -> None:
        self._end_leftovers()
        check_ports(self._plan.programs)
        for server in list_servers(self.settings):
            server.prepare()
        self.supervisor.start(self._plan.programs, self._plan.variables)
        write_secret(self._digest_file, self._digest())

    def _end_leftovers(self) -> None:
        """Services first, so that PostgreSQL and RabbitMQ lose their clients before they are asked to stop."""
        servers = list_servers(self.settings)
        of_servers = {process.pid for server in servers for process in processes_under(server.directory)}
        leftovers = processes_under(self.settings.state_dir)
        end_processes(process for process in leftovers if process.pid not in of_servers)
        for server in servers:
            server.stop()

    def _start(self, programs: Sequence[Program]) -> None:
        for program in programs:
            self.supervisor.start_program(program.name)

    def _wait_ready(self, programs: Sequence[Program]) -> None:
        """Raises StackError, with the end of its log, for a program that gives up, keeps restarting or takes too long."""
        waiting = list(programs)
        starts: defaultdict[str, set[int]] = defaultdict(set)
        started = time.monotonic()
        while waiting:
            states = self.supervisor.states()
            for program in [program for program in waiting if states[program.name].pid]:
                starts[program.name].add(states[program.name].pid)
                if program.is_ready():
                    self._report(f"{program.name} is ready on port {program.port} ({time.monotonic() - started:.1f} s)")
                    waiting.remove(program)
            too_late = time.monotonic() - started > READY_SECONDS
            for program in waiting:
                if too_late or states[program.name].has_given_up or len(starts[program.name]) > MOST_STARTS:
                    raise self._failure(program)
            time.sleep(POLL_SECONDS)

    def _failure(self, program: Program) -> StackError:
        log = self.settings.logs / f"{program.name}.log"
        lines = log.read_text(errors="replace").splitlines()[-15:] if log.exists() else []
        tail = "\n".join(dict.fromkeys(lines))  # every restart says the same again
        return StackError(f"{program.name} does not become ready:\n{tail}", f"see {log}, then `make up` again")

    @property
    def _digest_file(self) -> Path:
        return self.settings.state_dir / "supervisor" / "digest"

    def _is_outdated(self) -> bool:
        return not self._digest_file.exists() or self._digest_file.read_text() != self._digest()

    def _digest(self) -> str:
        """Of all that a running stack has taken from outside: its programs, its environment and the files of models and tools."""
        environment = {**os.environ, **self._plan.variables, **self._plan.owner_variables}
        relevant = {name: value for name, value in environment.items() if _is_relevant(name)}
        commands = [
            (program.name, program.command, sorted(program.variables.items())) for program in self._plan.programs
        ]
        files = [REPOSITORY / file for file in (self.settings.models_file, self.settings.tools_file)]
        contents = [file.read_bytes() if file.exists() else b"" for file in files]
        return hashlib.sha256(repr((sorted(relevant.items()), commands, contents)).encode()).hexdigest()


def _is_relevant(name: str) -> bool:
    return name.startswith(RELEVANT_VARIABLES) or name.endswith(RELEVANT_ENDINGS)
