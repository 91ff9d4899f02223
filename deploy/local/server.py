"""What the private PostgreSQL and the private RabbitMQ have in common: a directory, a port, and a child process."""

import abc
import os
import pwd
import signal
import subprocess
from pathlib import Path

from deploy.local.errors import StackError
from deploy.local.processes import MARK, end_processes, kill_processes, processes_under, wait_until


class LocalServer(abc.ABC):
    """A server with all its state below `directory`, bound to 127.0.0.1.

    It can be run in two ways: `start` makes it a child of this process, or a supervisor runs `command` with
    `environment` as `account` after `prepare`.
    """

    name: str
    stop_signal = signal.SIGTERM
    stop_seconds = 30.0

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory.resolve()
        self.port = port
        self.log_file = self.directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    @abc.abstractmethod
    def prepare(self) -> None:
        """Writes the configuration and, the first time, the data directory. Only for a server that is not running."""

    @abc.abstractmethod
    def command(self) -> list[str]:
        """The server in the foreground."""

    @abc.abstractmethod
    def is_ready(self) -> bool:
        """Whether a client would be served now."""

    @property
    @abc.abstractmethod
    def url(self) -> str:
        """Where clients connect, with user and password."""

    @property
    def account(self) -> str | None:
        """The user that the server must run as; None: ours."""
        return None

    @property
    def group(self) -> int | None:
        return pwd.getpwnam(self.account).pw_gid if self.account else None

    @property
    def extra_groups(self) -> list[int] | None:
        return [] if self.account else None

    def variables(self) -> dict[str, str]:
        """Environment variables that the server needs beside the inherited ones."""
        return {MARK: str(self.directory)}

    def environment(self) -> dict[str, str]:
        return {**os.environ, **self.variables()}

    def start(self, seconds: float = 60.0) -> None:
        """Starts the server as a child and returns when it serves.

        Raises StackError when it ends before that, or takes longer than `seconds`.
        """
        self.stop()
        self.prepare()
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                env=self.environment(),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=self.account,
                group=self.group,
                extra_groups=self.extra_groups,
            )
        if not wait_until(lambda: not self.is_running() or self.is_ready(), seconds) or not self.is_running():
            self.kill()
            raise StackError(f"{self.name} did not start:\n{self.log_tail()}", f"see {self.log_file}")

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """An orderly end; no process and no lost data is left. Harmless when the server is not running."""
        end_processes(processes_under(self.directory), self.stop_seconds, self.stop_signal)
        self._reap()

    def kill(self) -> None:
        """SIGKILL to the server and its children, as a power cut would end them."""
        kill_processes(processes_under(self.directory))
        self._reap()

    def restart(self) -> None:
        self.stop()
        self.start()

    def log_tail(self, lines: int = 15) -> str:
        if not self.log_file.exists():
            return ""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])

    def _reap(self) -> None:
        if self._process is not None:
            self._process.wait()
            self._process = None
