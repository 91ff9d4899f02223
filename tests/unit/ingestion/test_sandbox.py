"""What a confined process can't do. Each part is tried alone as well, because no system has to permit all of them."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TRIES = """
import json, os, socket, sys
from services.ingestion.parsing import sandbox
from services.ingestion.parsing.sandbox import kernel, landlock, seccomp
import ctypes

part, port, secret, new = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
inherited = socket.socket()
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)

def confined():
    try:
        if part == "all":
            return sandbox.confine()
        if part == "network":
            sandbox._leave_network(libc)
        elif part == "landlock":
            landlock.restrict(libc, sandbox._readable())
        else:
            seccomp.restrict(libc)
    except kernel.NotPermitted as error:
        return str(error)
    return {part: True}

def works(action):
    try:
        action()
    except OSError:
        return False
    return True

def run():
    if os.fork() == 0:
        try:
            os.execv(sys.executable, [sys.executable, "-c", ""])
        except OSError:
            os._exit(1)
    if os.wait()[1]:
        raise OSError

print(json.dumps([confined(), {
    "connect": works(lambda: inherited.connect(("127.0.0.1", port))),
    "open a socket": works(lambda: socket.create_connection(("127.0.0.1", port))),
    "read a file": works(lambda: open(secret).read()),
    "read another process's environment": works(lambda: open(f"/proc/{os.getppid()}/environ").read()),
    "write a file": works(lambda: open(secret, "a").write("x")),
    "create a file": works(lambda: open(new, "w").close()),
    "delete a file": works(lambda: os.unlink(secret)),
    "run a program": works(run),
    "import": works(lambda: __import__("xml.dom.minidom")),
}]))
"""


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def attempt(part: str, port: int, directory: Path) -> dict[str, bool]:
    """Return what a process that is confined in this part could do; skip where the system doesn't permit the part."""
    secret = directory / "secret"
    secret.write_text("a password")
    command = [sys.executable, "-c", TRIES, part, str(port), str(secret), str(directory / "new")]
    printed = subprocess.run(
        command, check=True, capture_output=True, text=True, env={"PATH": os.environ["PATH"]}
    ).stdout
    confined, did = json.loads(printed)
    if isinstance(confined, str):
        pytest.skip(f"the system doesn't permit it: {confined}")
    assert any(confined.values())
    assert did.pop("import")
    return dict(did)


def test_a_confined_process_can_do_nothing_but_compute(port: int, tmp_path: Path) -> None:
    did = attempt("all", port, tmp_path)
    assert did == dict.fromkeys(did, False)
    assert (tmp_path / "secret").read_text() == "a password"
    assert not (tmp_path / "new").exists()


def test_a_network_namespace_reaches_nothing(port: int, tmp_path: Path) -> None:
    did = attempt("network", port, tmp_path)
    assert not did["open a socket"]
    assert did["read a file"]  # so that the test tells the parts apart


def test_landlock_hides_files(port: int, tmp_path: Path) -> None:
    did = attempt("landlock", port, tmp_path)
    assert not any(did[deed] for deed in did if "file" in deed or "environment" in deed)


def test_the_filter_refuses_sockets_programs_and_changes(port: int, tmp_path: Path) -> None:
    did = attempt("seccomp", port, tmp_path)
    refused = {"connect", "open a socket", "write a file", "create a file", "delete a file", "run a program"}
    assert {deed for deed in did if not did[deed]} == refused
