"""What comes in: wake-ups for runs, and hints that a run was cancelled."""

from functools import partial

from faststream.rabbit import RabbitBroker

from services.agent_runner.worker import Worker
from shared.contracts.commands import ExecuteRun
from shared.contracts.hints import RunCancelled
from shared.logging import log_context
from shared.topology import RUNS
from shared.wake_ups import read_command, subscribe_to_wake_ups

_PREFETCH = 4  # parked wake-ups a process at most, when its slots are full


def subscribe(broker: RabbitBroker, worker: Worker) -> None:
    """Registers the handler of wake-ups for runs."""
    subscribe_to_wake_ups(broker, RUNS, _PREFETCH, partial(execute_run, worker))


async def execute_run(worker: Worker, body: bytes) -> None:
    """Returns when the run is claimed or not to be had, which acknowledges the wake-up; the run goes on by itself."""
    command = read_command(body, ExecuteRun)
    with log_context(request_id=command.request_id, tenant_id=command.tenant_id, run_id=command.run_id):
        await worker.take(command)


class CancellationListener:
    """Reads RunCancelled out of the stream of hints."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def on_hint(self, kind: str, _routing_key: str, body: bytes) -> None:
        """Stops the run if it is here. Raises ValueError for an unreadable hint."""
        if kind == "run.cancelled":
            self._worker.cancel(RunCancelled.model_validate_json(body).run_id)
