"""Loses the container that works on a run, in the middle of its answer."""

import subprocess
from collections.abc import Sequence
from typing import Any

from deploy.docker.gateway_client import CheckFailedError


class RunnerKiller:
    """Watches a run's events; the runner that claimed it gets a SIGKILL at the first words of the answer.

    Docker does not start a container again that it killed itself. With no runners given, nothing happens.
    """

    def __init__(self, runners: Sequence[str], run_id: str) -> None:
        self._runners = runners
        self._run_id = run_id
        self._owner: str | None = None
        self.has_killed = False

    def observe(self, event: dict[str, Any]) -> None:
        """Raises CheckFailedError when no runner's log tells of the run although one is at work."""
        if not self._runners or self.has_killed:
            return
        if self._owner is None and event["type"] == "run.state" and event["state"] == "THINKING":
            self._owner = self._find_worker(self._runners)
            if self._owner is None:
                raise CheckFailedError(f"no agent-runner claimed run {self._run_id}")
        if self._owner is not None and event["type"] == "message.delta":
            _docker("kill", self._owner)
            self.has_killed = True

    def refuse_missed_kill(self) -> None:
        """Raises CheckFailedError unless another runner had to go on."""
        if not self._runners:
            return
        if not self.has_killed:
            raise CheckFailedError("the answer came without deltas, so no runner was killed")
        others = [runner for runner in self._runners if runner != self._owner]
        if self._find_worker(others) is None:
            raise CheckFailedError("the answer was complete before its runner was killed")

    def _find_worker(self, runners: Sequence[str]) -> str | None:
        """The first container whose log names the run."""
        return next((runner for runner in runners if self._run_id in _docker("logs", runner)), None)


def _docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=True).stdout
