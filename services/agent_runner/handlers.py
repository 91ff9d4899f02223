"""What comes in: wake-ups for runs, and hints that a run was cancelled."""

from typing import Annotated

from faststream import AckPolicy, Context
from faststream.exceptions import NackMessage
from faststream.rabbit import RabbitRouter

from services.agent_runner.worker import Worker
from shared.contracts.commands import ExecuteRun
from shared.contracts.hints import RunCancelled
from shared.jobs import Draining
from shared.logging import log_context
from shared.topology import RUNS, consumer_channel, wake_up_queue

router = RabbitRouter()

_PREFETCH = 4  # parked wake-ups a process at most, when its slots are full


@router.subscriber(
    wake_up_queue(RUNS), channel=consumer_channel(_PREFETCH), ack_policy=AckPolicy.REJECT_ON_ERROR, no_reply=True
)
async def execute_run(command: ExecuteRun, worker: Annotated[Worker, Context()]) -> None:
    """Claims the run and returns, which acknowledges the wake-up; the run goes on by itself."""
    with log_context(request_id=command.request_id, tenant_id=command.tenant_id, run_id=command.run_id):
        try:
            await worker.take(command)
        except (TimeoutError, Draining) as error:
            raise NackMessage(requeue=True) from error


class CancellationListener:
    """Reads RunCancelled out of the stream of hints."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def on_hint(self, kind: str, _routing_key: str, body: bytes) -> None:
        """Stops the run if it is here. Raises ValueError for an unreadable hint."""
        if kind == "run.cancelled":
            self._worker.cancel(RunCancelled.model_validate_json(body).run_id)
