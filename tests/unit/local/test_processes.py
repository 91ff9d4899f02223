"""A stack ends its own processes, wherever they hide, and nobody else's."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from deploy.local.processes import (
    MARK,
    end_processes,
    is_alive,
    is_port_free,
    is_port_open,
    processes_under,
    wait_until,
)

WAITS = "import signal; print('up', flush=True); signal.pause()"
SILENT = "import signal; signal.pause()"
IGNORES_SIGTERM = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITS}"


class Starter:
    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []

    def __call__(self, mark: Path, code: str = WAITS) -> int:
        """Starts a process for `mark` and returns its pid when it runs."""
        process = subprocess.Popen(
            [sys.executable, "-c", code], env={**os.environ, MARK: str(mark)}, stdout=subprocess.PIPE
        )
        self.processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return process.pid


@pytest.fixture
def start() -> Iterator[Starter]:
    starter = Starter()
    yield starter
    for process in starter.processes:
        process.kill()
        process.communicate()


def pids_under(directory: Path) -> set[int]:
    return {process.pid for process in processes_under(directory)}


def test_processes_are_found_by_the_directory_they_were_started_for(start: Starter, tmp_path: Path) -> None:
    ours = start(tmp_path / "stack" / "gateway")
    other = start(tmp_path / "stack-of-others")
    assert pids_under(tmp_path / "stack") == {ours}
    assert pids_under(tmp_path) == {ours, other}


def test_ending_leaves_the_neighbours_alone(start: Starter, tmp_path: Path) -> None:
    start(tmp_path / "a")
    neighbour = start(tmp_path / "b")
    end_processes(processes_under(tmp_path / "a"))
    assert pids_under(tmp_path) == {neighbour}


def test_one_that_ignores_the_request_is_killed(start: Starter, tmp_path: Path) -> None:
    pid = start(tmp_path, IGNORES_SIGTERM)
    end_processes(processes_under(tmp_path), grace_seconds=0.2)
    assert not is_alive(psutil.Process(pid))


def test_children_are_left_to_their_parent_and_killed_with_it(start: Starter, tmp_path: Path) -> None:
    start(tmp_path, f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SILENT!r}]); {WAITS}")
    assert wait_until(lambda: len(pids_under(tmp_path)) == 2, 5)
    end_processes(processes_under(tmp_path), grace_seconds=0.2, stop_signal=signal.SIGTERM)
    assert pids_under(tmp_path) == set()


def test_a_listening_port_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert is_port_open(port)
        assert not is_port_free(port)
    assert not is_port_open(port)
    assert is_port_free(port)
