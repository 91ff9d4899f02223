"""Naming who sits on a port before anything is started, instead of failing half way."""

import itertools
from collections.abc import Iterable

import psutil

from deploy.local.errors import StackError
from deploy.local.processes import is_port_free
from deploy.local.programs import Program


def check_ports(programs: Iterable[Program]) -> None:
    """Raises StackError for the first port that is taken, with its holder and the setting that moves it."""
    for program in programs:
        for setting, port in program.ports.items():
            if not is_port_free(port):
                remedy = f"stop it, or choose another port: {setting}={_next_free(port)} make up"
                raise StackError(f"port {port} ({program.name}) is taken by {_holder(port)}", remedy)


def _next_free(port: int) -> int:
    candidates = itertools.chain(range(port + 1, 65536), range(1024, port))
    return next(filter(is_port_free, candidates))


def _holder(port: int) -> str:
    try:
        pids = {
            connection.pid
            for connection in psutil.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
        }
        return ", ".join(_describe(pid) for pid in pids if pid) or "another program"
    except psutil.Error:
        return "another program"


def _describe(pid: int) -> str:
    command = " ".join(psutil.Process(pid).cmdline())
    return f"{command[:60]} (pid {pid})"
