"""The previous release and this one, as processes on one database and one broker."""

import io
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Literal

import httpx
import pytest

from tests.support.stack import REPOSITORY, ServiceProcess, Stack

# The commit that the release before this one was made of: the migrations since then must suit its code.
PREVIOUS_RELEASE = "044594b9daf6"

Release = Literal["old", "new"]
WORKERS = ("agent_runner", "ingestion", "retrieval")


def extract_previous_release(directory: Path) -> None:
    """Writes its files; skips the test where the repository's history lacks them."""
    if shutil.which("git") is None:
        pytest.skip("needs git, to read the previous release")
    packed = subprocess.run(
        ["git", "archive", "--format=tar", PREVIOUS_RELEASE], cwd=REPOSITORY, capture_output=True, check=False
    )
    if packed.returncode != 0:
        pytest.skip(f"the history lacks the previous release {PREVIOUS_RELEASE}: a shallow clone, or no repository")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(directory, filter="data")


@dataclass
class Releases:
    """Starts and ends services of both releases. `previous` is where the files of the previous one are."""

    stack: Stack
    previous: Path
    environment: Mapping[str, str]
    key: str = ""
    running: dict[tuple[Release, str], ServiceProcess] = field(default_factory=dict)
    numbers: "count[int]" = field(default_factory=lambda: count(1000))

    def run(self, gateways: tuple[Release, ...], workers: tuple[Release, ...]) -> None:
        """Lets exactly these run: a gateway and one of each worker of the releases named. Returns when all are ready."""
        wanted = {(release, "gateway") for release in gateways}
        wanted |= {(release, name) for release in workers for name in WORKERS}
        for extra in self.running.keys() - wanted:
            self.running.pop(extra).kill()
        for release, name in sorted(wanted - self.running.keys()):
            self.running[release, name] = self._start(release, name)
        for process in self.running.values():
            process.wait_ready(60)

    def _start(self, release: Release, name: str) -> ServiceProcess:
        directory = self.stack.directory / "services"
        process = ServiceProcess(f"services.{name}.main", self.environment, directory, next(self.numbers))
        # The working directory is where Python looks first.
        process.start(within=["env", f"--chdir={self.previous}"] if release == "old" else [])
        return process

    def client(self, release: Release) -> httpx.AsyncClient:
        """Speaks with the gateway of a release."""
        return httpx.AsyncClient(
            base_url=self.running[release, "gateway"].base_url,
            headers={"Authorization": f"Bearer {self.key}"},
            timeout=30,
            trust_env=False,
        )

    def stop(self) -> None:
        for process in self.running.values():
            process.kill()
