"""Finding the system's RabbitMQ package, and installing it where it is missing."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from deploy.local.errors import StackError

BINARY_VARIABLE = "RABBITMQ_SERVER_BIN"
# Debian's /usr/sbin/rabbitmq-server switches to the account of the system's own node: the script behind it is wanted.
PACKAGE_PATHS = (
    Path("/usr/lib/rabbitmq/bin/rabbitmq-server"),
    Path("/opt/homebrew/opt/rabbitmq/sbin/rabbitmq-server"),
    Path("/usr/local/opt/rabbitmq/sbin/rabbitmq-server"),
    Path("/opt/rabbitmq/sbin/rabbitmq-server"),
)


def find_server() -> Path:
    """The `rabbitmq-server` script. Raises StackError with what to install when there is none."""
    chosen = os.environ.get(BINARY_VARIABLE)
    if chosen and not os.access(chosen, os.X_OK):
        raise StackError(f"{BINARY_VARIABLE}={chosen} is not a program", "correct it or unset it")
    found = next(_candidates(chosen), None)
    if found is None:
        raise StackError("RabbitMQ is not installed", _remedy())
    return found


def ensure_installed() -> None:
    """Installs RabbitMQ with the system's package manager when it is missing and this account may do that."""
    try:
        find_server()
    except StackError:
        if os.environ.get(BINARY_VARIABLE):
            raise
        _install()
        find_server()


def _candidates(chosen: str | None) -> Iterator[Path]:
    if chosen:
        yield Path(chosen)
        return
    yield from (path for path in PACKAGE_PATHS if os.access(path, os.X_OK))
    on_path = shutil.which("rabbitmq-server")
    if on_path and not on_path.startswith("/usr/sbin/"):
        yield Path(on_path)


def _remedy() -> str:
    if sys.platform == "darwin":
        return "brew install rabbitmq"
    if shutil.which("apt-get"):
        return "sudo apt-get install --no-install-recommends rabbitmq-server, or set RABBITMQ_URL to a broker that runs"
    return f"install rabbitmq-server and set {BINARY_VARIABLE} to it, or set RABBITMQ_URL to a broker that runs"


def _install() -> None:
    if sys.platform == "darwin" and shutil.which("brew"):
        _run(["brew", "install", "rabbitmq"])
        return
    if not shutil.which("apt-get"):
        raise StackError("RabbitMQ is not installed", _remedy())
    # The package may start a node of its own on port 5672: it is left alone, ours shares nothing with it.
    as_root = _root_prefix()
    _run([*as_root, "apt-get", "update", "-q"])
    install = ["apt-get", "install", "-yq", "--no-install-recommends", "rabbitmq-server"]
    _run([*as_root, "env", "DEBIAN_FRONTEND=noninteractive", *install])


def _root_prefix() -> list[str]:
    if os.geteuid() == 0:
        return []
    if (
        shutil.which("sudo")
        and subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode == 0
    ):
        return ["sudo", "-n"]
    raise StackError("RabbitMQ is not installed, and installing it needs root", _remedy())


def _run(command: Sequence[str]) -> None:
    print(f"RabbitMQ is missing: {' '.join(command)}", flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-15:])
        raise StackError(f"{' '.join(command)} failed:\n{tail}", _remedy())


if __name__ == "__main__":
    try:
        ensure_installed()
    except StackError as error:
        sys.exit(f"{error}")
