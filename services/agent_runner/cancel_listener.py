"""Reads out of the stream of hints which runs were cancelled."""

from services.agent_runner.worker import Worker
from shared.contracts.hints import RunCancelled


class CancellationListener:
    """Reads RunCancelled out of the stream of hints."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def on_hint(self, kind: str, _routing_key: str, body: bytes) -> None:
        """Stops the run if it is here. Raises ValueError for an unreadable hint."""
        if kind == "run.cancelled":
            self._worker.cancel(RunCancelled.model_validate_json(body).run_id)
