"""Finding and ending the processes of one stack, and nobody else's.

Every process that a stack starts inherits ``CHATMIND_STARTED_FOR``, the directory that it keeps its state in. What is
found by that mark is ours even when its parent was killed, when it went into the background (Erlang's epmd does) or
when its pid file lies; a PostgreSQL or RabbitMQ of somebody else does not carry it.
"""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil

MARK = "CHATMIND_STARTED_FOR"
POLL_SECONDS = 0.05


def processes_under(directory: Path) -> list[psutil.Process]:
    """Live processes that were started for `directory` or for a directory below it; never the caller."""
    directory = directory.resolve()
    return [process for process in psutil.process_iter() if process.pid != os.getpid() and _belongs(process, directory)]


def _belongs(process: psutil.Process, directory: Path) -> bool:
    try:
        mark = process.environ().get(MARK)
    except (psutil.Error, OSError):
        return False
    return mark is not None and Path(mark).is_relative_to(directory) and is_alive(process)


def end_processes(
    processes: Iterable[psutil.Process],
    grace_seconds: float = 10.0,
    stop_signal: signal.Signals = signal.SIGTERM,
) -> None:
    """Asks them to stop, then SIGKILL for those that are still there after `grace_seconds`.

    A process whose parent is among them is left to its parent, which knows best in what order its children end.
    """
    ending = list(processes)
    pids = {process.pid for process in ending}
    for process in ending:
        if _parent_pid(process) not in pids:
            _send(process, stop_signal)
    wait_until(lambda: not any(map(is_alive, ending)), grace_seconds)
    kill_processes(filter(is_alive, ending))


def kill_processes(processes: Iterable[psutil.Process]) -> None:
    """SIGKILL to them and to their descendants, and wait until they are gone.

    The descendants are listed because a PostgreSQL backend overwrites its environment, and with it the mark.
    """
    killed = [member for process in processes for member in (process, *_descendants(process))]
    for process in killed:
        _send(process, signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, killed)), 10)


def is_alive(process: psutil.Process) -> bool:
    """False for a zombie: it only waits for its parent to take note."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _parent_pid(process: psutil.Process) -> int | None:
    try:
        return process.ppid()
    except psutil.NoSuchProcess:
        return None


def _send(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def is_port_open(port: int) -> bool:
    """Whether something accepts connections on 127.0.0.1:`port`."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def is_port_free(port: int) -> bool:
    """Whether a server could listen on 127.0.0.1:`port` now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Polls `condition`; False when it did not become true in `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
