"""The agent-runner process: everything concrete is built here."""

import structlog

from services.agent_runner.handlers import CancellationListener, subscribe
from services.agent_runner.loop import Loop
from services.agent_runner.models.client import ModelClient, new_http_client
from services.agent_runner.settings import RunnerSettings
from services.agent_runner.store import RunStore
from services.agent_runner.sweeper import Sweeper
from services.agent_runner.tools.clock import CurrentTimeTool
from services.agent_runner.tools.knowledge import KnowledgeTool
from services.agent_runner.tools.toolbox import Toolbox
from services.agent_runner.worker import Worker
from shared.contracts.questions import SearchKnowledge, SearchResult
from shared.db.pool import open_pool
from shared.hints import HintListener, HintPublisher
from shared.jobs import JobSlots
from shared.leases import LeaseKeeper, Presence
from shared.logging import configure_logging
from shared.outbox import OutboxRelay
from shared.rpc import RpcClient
from shared.service import Service, consumer_check, database_check, load_models, main, make_broker, run_service
from shared.settings import load_settings
from shared.topology import QUESTIONS

SERVICE = "agent-runner"

log = structlog.get_logger()


async def start() -> None:
    """Runs the process until it is told to stop."""
    settings = load_settings(RunnerSettings)
    configure_logging(SERVICE, settings.log_level)
    registry = load_models(settings.models_file)
    database_url, rabbitmq_url = settings.database_url.get_secret_value(), settings.rabbitmq_url.get_secret_value()
    pool = await open_pool(database_url, SERVICE, settings.pool)
    presence = Presence(database_url, SERVICE)
    store = RunStore(pool, presence.owner, settings.lease, settings.memory)
    hints = HintPublisher(rabbitmq_url, SERVICE)
    relay = OutboxRelay(pool, rabbitmq_url, SERVICE)
    rpc = RpcClient(rabbitmq_url, SERVICE, max_in_flight=settings.tools.questions_in_flight)
    keeper = LeaseKeeper(store.renew, settings.lease)
    slots = JobSlots(settings.slots)
    http = new_http_client()

    async def ask(question: SearchKnowledge) -> SearchResult:
        return await rpc.ask(QUESTIONS, question, SearchResult, deadline=settings.tools.retrieval_deadline)

    toolbox = Toolbox([KnowledgeTool(ask), CurrentTimeTool()], settings.tools)
    loop = Loop(ModelClient(registry, http), toolbox, settings.memory)
    worker = Worker(store, loop, slots, keeper, hints, relay.nudge, settings)
    listener = HintListener(rabbitmq_url, SERVICE, CancellationListener(worker).on_hint, lambda: None)
    broker = make_broker(settings, SERVICE, apply_types=False)
    subscribe(broker, worker)

    async def close() -> None:
        await http.aclose()
        await pool.close()

    await run_service(
        Service(
            name=SERVICE,
            broker=broker,
            loops=[
                presence.run,
                keeper.run,
                relay.run,
                hints.run,
                rpc.run,
                listener.run,
                Sweeper(store, relay.nudge, settings.lease.sweep_every).run,
            ],
            checks={"database": database_check(pool), "consumer": consumer_check(broker)},
            stop_taking=slots.stop_taking,
            drain=lambda: slots.drain(settings.drain),
            close=close,
        ),
        settings,
    )


if __name__ == "__main__":
    main(start)
