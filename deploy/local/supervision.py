"""supervisord, which starts, watches and restarts the programs and rotates their logs; reached over a unix socket."""

import http.client
import os
import shlex
import subprocess
import sys
import xmlrpc.client
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from supervisor.xmlrpc import SupervisorTransport

from deploy.local.errors import StackError
from deploy.local.processes import MARK, wait_until
from deploy.local.programs import Program
from deploy.local.secret_files import write_secret
from deploy.local.settings import REPOSITORY

LONGEST_SOCKET_PATH = 90  # of 104 (macOS) that the kernel allows; supervisord appends its pid while it starts
STOP_SECONDS = 120.0  # of the longest orderly end: four services, one after the other
ANSWERS_WRONGLY = (OSError, http.client.HTTPException, xmlrpc.client.Error)


@dataclass(frozen=True)
class ProgramState:
    """What supervisord knows of a program. `started_at` is a Unix time, 0 before the first start."""

    name: str
    state: str
    pid: int
    started_at: int
    description: str

    @property
    def is_running(self) -> bool:
        return self.state == "RUNNING"

    @property
    def has_given_up(self) -> bool:
        return self.state == "FATAL"


class Supervisor:
    """The supervisord of one state directory."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir.resolve()
        self.directory = self.state_dir / "supervisor"
        self._socket = self.directory / "socket"
        self._pid_file = self.directory / "pid"
        self._configuration = self.directory / "supervisord.conf"

    def is_running(self) -> bool:
        """Whether it answers; a socket file that a killed one left behind does not."""
        try:
            self._call("getState")
        except ANSWERS_WRONGLY:
            return False
        return True

    def start(self, programs: Sequence[Program], variables: Mapping[str, str]) -> None:
        """Starts supervisord with no program running. The programs inherit `variables`, which stay out of its file."""
        if len(str(self._socket)) > LONGEST_SOCKET_PATH:
            raise StackError(
                f"the path {self._socket} is too long for a socket", "move the repository to a shorter path"
            )
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.state_dir / "logs").mkdir(exist_ok=True)
        for leftover in (self._socket, self._pid_file):
            leftover.unlink(missing_ok=True)
        write_secret(self._configuration, self.render(programs))
        done = subprocess.run(
            [sys.executable, "-m", "supervisor.supervisord", "-c", str(self._configuration)],
            env={**os.environ, **variables, MARK: str(self.directory)},
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0 or not wait_until(self.is_running, 10):
            raise StackError(
                f"supervisord did not start:\n{done.stdout}{done.stderr}", f"see {self.state_dir / 'logs'}"
            )

    def shut_down(self) -> bool:
        """Stops all programs in their order and then supervisord; False when it took too long."""
        try:
            self._call("shutdown")
        except ANSWERS_WRONGLY:
            return False
        return wait_until(lambda: not self._pid_file.exists() and not self.is_running(), STOP_SECONDS)

    def start_program(self, name: str) -> None:
        """Returns at once; harmless for one that runs."""
        if self.states()[name].state not in {"RUNNING", "STARTING", "BACKOFF"}:
            self._call("startProcess", name, False)

    def states(self) -> dict[str, ProgramState]:
        return {entry["name"]: _state(entry) for entry in self._call("getAllProcessInfo")}

    def _call(self, method: str, *arguments: object) -> Any:
        transport = SupervisorTransport(None, None, serverurl=f"unix://{self._socket}")
        with xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport) as proxy:
            return getattr(proxy.supervisor, method)(*arguments)

    def render(self, programs: Sequence[Program]) -> str:
        """The configuration file for these programs. It holds the passwords of the services' accounts: in the environment that all programs
        inherit, each service would know those of the others.
        """
        logs = self.state_dir / "logs"
        sections: dict[str, dict[str, object]] = {
            "unix_http_server": {"file": self._socket, "chmod": "0700"},
            "supervisord": {
                "logfile": logs / "supervisord.log",
                "logfile_maxbytes": "10MB",
                "logfile_backups": 1,
                "pidfile": self._pid_file,
                "childlogdir": logs,
                "directory": REPOSITORY,
                "identifier": "chatmind",
                **({"user": "root"} if os.geteuid() == 0 else {}),
            },
            "rpcinterface:supervisor": {
                "supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"
            },
            **{f"program:{program.name}": _program_section(program, logs) for program in programs},
        }
        return "\n".join(_render_section(name, options) for name, options in sections.items())


def _program_section(program: Program, logs: Path) -> dict[str, object]:
    variables = ",".join(f'{name}="{value}"' for name, value in program.variables.items())
    return {
        "command": shlex.join(program.command),
        "environment": variables,
        "autostart": "false",
        "autorestart": "true",
        "startsecs": 1,
        "startretries": 3,
        "priority": program.rank,
        "stopsignal": program.stop_signal.name.removeprefix("SIG"),
        "stopwaitsecs": program.stop_seconds,
        "killasgroup": "true",
        "redirect_stderr": "true",
        "stdout_logfile": logs / f"{program.name}.log",
        "stdout_logfile_maxbytes": "10MB",
        "stdout_logfile_backups": 3,
        **({"user": program.account} if program.account else {}),
    }


def _render_section(name: str, options: Mapping[str, object]) -> str:
    lines = [f"{key} = {str(value).replace('%', '%%')}" for key, value in options.items()]
    return "\n".join([f"[{name}]", *lines, ""])


def _state(entry: dict[str, Any]) -> ProgramState:
    return ProgramState(
        name=cast(str, entry["name"]),
        state=cast(str, entry["statename"]),
        pid=cast(int, entry["pid"]),
        started_at=cast(int, entry["start"]),
        description=cast(str, entry["spawnerr"] or entry["description"]),
    )
