"""A network namespace in which a service runs and where packets to one of its servers can be made to vanish.

Its loopback is its own, so nothing outside is touched. A relay inside listens on the ports of the servers and passes each connection
through a Unix socket, which namespaces do not separate, to the real port outside.
What is dropped are the packets between the service and its end of the relay, so that neither side hears anything.
"""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.faults.bed import Bed
from tests.faults.relay import forward_to_port, listen_on_socket
from tests.faults.tally import NotHere
from tests.support.stack import REPOSITORY
from tests.support.waiting import eventually

_PROGRAMS = ("unshare", "nsenter", "ip", "iptables")


class Namespace:
    """`command` runs a program inside. `ports` are those of the servers outside."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports = ports
        self._directory = Path(tempfile.mkdtemp(prefix="faults-"))
        self._relay: asyncio.subprocess.Process | None = None
        self._servers: list[asyncio.Server] = []

    async def __aenter__(self) -> Self:
        await self._require_privileges()
        for port in self._ports:
            self._servers.append(await listen_on_socket(self._directory / f"{port}.out", forward_to_port(port)))
        arguments = ["-m", "tests.faults.relay", str(self._directory), *map(str, self._ports)]
        command = ["unshare", "--net", "--", sys.executable, *arguments]
        self._relay = await asyncio.create_subprocess_exec(
            *command, cwd=REPOSITORY, stdout=asyncio.subprocess.PIPE, start_new_session=True
        )
        assert self._relay.stdout is not None
        await asyncio.wait_for(self._relay.stdout.readline(), 30)
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        if self._relay is not None and self._relay.returncode is None:
            os.killpg(self._relay.pid, signal.SIGKILL)
            await self._relay.wait()
        shutil.rmtree(self._directory)

    @property
    def command(self) -> list[str]:
        assert self._relay is not None
        return ["nsenter", f"--net=/proc/{self._relay.pid}/ns/net", "--"]

    async def ready(self, bed: Bed, name: str) -> None:
        """Returns when a service inside answers /readyz with 200."""
        port = bed.services[name].port
        probe = f"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{port}/readyz', timeout=2)"

        async def is_ready() -> bool:
            return await self._run(sys.executable, "-c", probe) == 0

        await eventually(is_ready, within=90, every=0.5)

    async def drop(self, port: int) -> None:
        """From now on packets from and to a port vanish."""
        for direction in ("--dport", "--sport"):
            code = await self._run("iptables", "-A", "INPUT", "-p", "tcp", direction, str(port), "-j", "DROP")
            assert code == 0, "iptables refused"

    async def restore(self) -> None:
        """Packets arrive again."""
        await self._run("iptables", "-F", "INPUT")

    async def _run(self, *command: str) -> int:
        process = await asyncio.create_subprocess_exec(
            *self.command, *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        return await process.wait()

    async def _require_privileges(self) -> None:
        """Raises NotHere when this account can't make a namespace with a filter in it."""
        missing = [program for program in _PROGRAMS if shutil.which(program) is None]
        if missing:
            shutil.rmtree(self._directory)
            raise NotHere(f"needs the programs {', '.join(missing)}")
        process = await asyncio.create_subprocess_exec(
            *("unshare", "--net", "--", "iptables", "-L", "-n"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        if await process.wait() != 0:
            shutil.rmtree(self._directory)
            raise NotHere("may not make a network namespace with a packet filter (run it as root)")
