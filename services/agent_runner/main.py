"""The agent-runner process: everything concrete is built here."""

from collections.abc import Callable, Coroutine
from functools import partial

from services.agent_runner.handlers import CancellationListener, subscribe
from services.agent_runner.loop import Loop
from services.agent_runner.models.client import ModelClient, new_http_client
from services.agent_runner.ports import Model
from services.agent_runner.settings import RunnerSettings
from services.agent_runner.store import RunStore
from services.agent_runner.sweeper import Sweeper
from services.agent_runner.tools.clock import CurrentTimeTool
from services.agent_runner.tools.knowledge import KnowledgeTool
from services.agent_runner.tools.toolbox import Toolbox
from services.agent_runner.worker import Worker
from shared.contracts.questions import SearchKnowledge, SearchResult
from shared.db.pool import Pool, open_pool
from shared.hints import HintListener, HintPublisher
from shared.jobs import JobSlots
from shared.leases import LeaseKeeper, Presence
from shared.logging import configure_logging
from shared.outbox import OutboxRelay
from shared.rpc import RpcClient
from shared.service import Service, consumer_check, database_check, load_models, main, make_broker, run_service
from shared.settings import load_settings
from shared.topology import QUESTIONS, RUNS
from shared.wake_ups import WaitingWakeUps

SERVICE = "agent-runner"


async def start() -> None:
    """Reads the configuration, waits for the database, then serves until SIGTERM."""
    settings = load_settings(RunnerSettings)
    configure_logging(SERVICE, settings.log_level)
    registry = load_models(settings.models_file)
    pool = await open_pool(settings.database_url.get_secret_value(), SERVICE, settings.pool)
    model = ModelClient(registry, new_http_client())

    async def close() -> None:
        await model.aclose()
        await pool.close()

    await run_service(build(settings, pool, model, close), settings)


def build(
    settings: RunnerSettings, pool: Pool, model: Model, close: Callable[[], Coroutine[None, None, None]]
) -> Service:
    """Joins the parts."""
    database_url, rabbitmq_url = settings.database_url.get_secret_value(), settings.rabbitmq_url.get_secret_value()
    presence = Presence(database_url, SERVICE)
    store = RunStore(pool, presence.owner, settings.lease, settings.memory)
    hints, relay = HintPublisher(rabbitmq_url, SERVICE), OutboxRelay(pool, rabbitmq_url, SERVICE)
    rpc = RpcClient(rabbitmq_url, SERVICE, max_in_flight=settings.tools.questions_in_flight)
    keeper, slots = LeaseKeeper(store.renew, settings.lease), JobSlots(settings.slots)

    async def ask(question: SearchKnowledge) -> SearchResult:
        return await rpc.ask(QUESTIONS, question, SearchResult, deadline=settings.tools.retrieval_deadline)

    toolbox = Toolbox([KnowledgeTool(ask), CurrentTimeTool()], settings.tools)
    loop = Loop(model, toolbox, settings.memory)
    worker = Worker(store, loop, slots, keeper, hints, relay.nudge, settings)
    listener = HintListener(rabbitmq_url, SERVICE, CancellationListener(worker).on_hint, lambda: None)
    waiting = WaitingWakeUps(rabbitmq_url, SERVICE, RUNS)
    sweeper = Sweeper(store, waiting.room, relay.nudge, settings.lease.sweep_every)
    broker = make_broker(settings, SERVICE, apply_types=False)
    subscribe(broker, worker)
    return Service(
        name=SERVICE,
        broker=broker,
        loops=[presence.run, keeper.run, relay.run, hints.run, rpc.run, listener.run, waiting.run, sweeper.run],
        checks={"database": database_check(pool), "consumer": consumer_check(broker)},
        stop_taking=slots.stop_taking,
        drain=partial(slots.drain, settings.drain),
        close=close,
    )


if __name__ == "__main__":
    main(start)
