"""The agent-runner process: everything concrete is built here."""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial

from services.agent_runner.cancel_listener import CancellationListener
from services.agent_runner.loop import Loop
from services.agent_runner.models.client import ModelClient
from services.agent_runner.models.client import new_http_client as new_model_http_client
from services.agent_runner.ports import Model
from services.agent_runner.settings import RunnerSettings
from services.agent_runner.store import RunStore
from services.agent_runner.sweeper import Sweeper
from services.agent_runner.tools.base import Tool
from services.agent_runner.tools.clock import CurrentTimeTool
from services.agent_runner.tools.http import HttpTool
from services.agent_runner.tools.http import new_http_client as new_tool_http_client
from services.agent_runner.tools.knowledge import KnowledgeTool
from services.agent_runner.tools.rewriting import QueryRewriter
from services.agent_runner.tools.toolbox import Toolbox
from services.agent_runner.worker import Worker
from shared.contracts.commands import ExecuteRun
from shared.contracts.questions import SearchKnowledge, SearchResult
from shared.db.pool import DATABASE_TROUBLE, Pool, open_pool
from shared.hints import HintListener, HintPublisher
from shared.jobs import Jobs
from shared.leases import LeaseKeeper, Presence
from shared.logging import configure_logging
from shared.outbox import OutboxRelay
from shared.rpc import RpcClient
from shared.service import (
    Service,
    consumer_check,
    database_check,
    load_models,
    load_tools,
    main,
    make_broker,
    run_service,
)
from shared.settings import load_settings
from shared.stuck import report_stuck_for_ever
from shared.topology import QUESTIONS, RUNS
from shared.wake_ups import subscribe_to_wake_ups

SERVICE = "agent-runner"


async def start() -> None:
    """Reads the configuration, waits for the database, then serves until SIGTERM."""
    settings = load_settings(RunnerSettings)
    configure_logging(SERVICE, settings.log_level)
    registry, entries = load_models(settings.models_file), load_tools(settings.tools_file)
    pool = await open_pool(settings.database_url.get_secret_value(), SERVICE, settings.pool)
    model, http = ModelClient(registry, new_model_http_client()), new_tool_http_client()
    tools = [HttpTool(entry, http, settings.tools.max_result_chars) for entry in entries.values()]

    async def close() -> None:
        await model.aclose()
        await http.aclose()
        await pool.close()

    await run_service(build(settings, pool, model, tools, close), settings)


def build(
    settings: RunnerSettings,
    pool: Pool,
    model: Model,
    tools: Sequence[Tool],
    close: Callable[[], Coroutine[None, None, None]],
) -> Service:
    """Joins the parts."""
    database_url, rabbitmq_url = settings.database_url.get_secret_value(), settings.rabbitmq_url.get_secret_value()
    presence = Presence(database_url, SERVICE)
    store = RunStore(pool, presence.owner, settings.lease, settings.memory)
    hints, relay = HintPublisher(rabbitmq_url, SERVICE), OutboxRelay(pool, rabbitmq_url, SERVICE, declares=(RUNS,))
    rpc = RpcClient(rabbitmq_url, SERVICE, max_in_flight=settings.tools.questions_in_flight)
    keeper = LeaseKeeper(store.renew, settings.lease)

    async def ask(question: SearchKnowledge) -> SearchResult:
        return await rpc.ask(QUESTIONS, question, SearchResult, deadline=settings.tools.retrieval_deadline)

    knowledge = KnowledgeTool(ask, QueryRewriter(model, settings.rewriting))
    toolbox = Toolbox([knowledge, CurrentTimeTool(), *tools], settings.tools)
    loop = Loop(model, toolbox, settings.memory, stopping=lambda: jobs.stopping)
    worker = Worker(store, loop, keeper, hints, relay.nudge, settings)
    jobs = Jobs(store.claim, worker.work, settings.jobs, DATABASE_TROUBLE)
    listener = HintListener(rabbitmq_url, SERVICE, CancellationListener(worker).on_hint, lambda: None)
    sweeper = Sweeper(store, keeper.held, jobs.nudge, settings.lease.sweep_every)
    stuck = partial(report_stuck_for_ever, pool)
    broker = make_broker(settings, SERVICE, apply_types=False)
    subscribe_to_wake_ups(broker, RUNS, ExecuteRun, jobs)
    return Service(
        name=SERVICE,
        broker=broker,
        loops=[presence.run, keeper.run, relay.run, hints.run, rpc.run, listener.run, sweeper.run, jobs.run, stuck],
        checks={"database": database_check(pool), "consumer": consumer_check(broker)},
        stop_taking=jobs.stop_taking,
        drain=jobs.drain,
        close=close,
    )


if __name__ == "__main__":
    main(start)
