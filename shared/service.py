"""How a service process lives: loops in the background, a consumer, and an end in a stated order.

Start: loops, health, then the consumer (which waits for a broker that is not up yet).
End, on SIGTERM or SIGINT: refuse new work, stop consuming and close the consumer's connection (which gives parked messages to other
replicas at once), drain (finish or hand back), stop the loops.
"""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import structlog
import uvloop
from faststream import FastStream
from faststream.rabbit import RabbitBroker

from shared.amqp import BROKER_TROUBLE
from shared.db.pool import Pool
from shared.health import Check, HealthServer
from shared.model_registry import ModelRegistry, RegistryError, load_registry
from shared.settings import CommonSettings
from shared.tool_registry import HttpToolEntry, ToolsFileError, load_tool_registry

log = structlog.get_logger()

Loop = Callable[[], Awaitable[None]]

_GRACE_SECONDS = 10.0
_START_PAUSE_SECONDS = 0.5
_WATCH_SECONDS = 1.0
_PATIENCE_SECONDS = 4.0


async def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Service:
    """The parts of a process. `loops` run for ever; `stop_taking` refuses new work; `drain` ends the work after consuming has stopped;
    `close` releases the rest."""

    name: str
    broker: RabbitBroker
    loops: Sequence[Loop]
    checks: Mapping[str, Check]
    stop_taking: Callable[[], None] = field(default=lambda: None)
    drain: Callable[[], Awaitable[None]] = field(default=_nothing)
    close: Callable[[], Awaitable[None]] = field(default=_nothing)


class PatientBroker(RabbitBroker):
    """FastStream's broker, which starts as often as it takes."""

    async def start(self) -> None:
        """Connects and consumes. A broker that has just come up may still refuse: RabbitMQ answers INTERNAL_ERROR to a consumer of a quorum
        queue that is being declared elsewhere at the same moment.
        """
        while True:
            try:
                return await super().start()
            except BROKER_TROUBLE as error:
                log.warning("broker.refused", cause=type(error).__name__)
                await self.stop()
                await asyncio.sleep(_START_PAUSE_SECONDS)


def make_broker(settings: CommonSettings, service: str, *, apply_types: bool = True) -> RabbitBroker:
    """FastStream's broker, patient at start and quiet about single messages (failures are logged).

    Without `apply_types` handlers get the body as it is: half a millisecond of CPU less a message, for those that are many.
    """
    return PatientBroker(
        settings.rabbitmq_url.get_secret_value(),
        fail_fast=False,
        reconnect_interval=1.0,
        graceful_timeout=_GRACE_SECONDS,
        app_id=service,
        logger=logging.getLogger("faststream.broker"),
        log_level=logging.DEBUG,
        apply_types=apply_types,
    )


def load_models(path: Path) -> ModelRegistry:
    """The models file; a wrong one ends the process at once (exit code 2), models that can't be used are named in the log."""
    try:
        registry = load_registry(path)
    except RegistryError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from None
    for name, problem in registry.problems().items():
        log.warning("model.unusable", model=name, problem=problem)
    return registry


def load_tools(path: Path) -> dict[str, HttpToolEntry]:
    """The tools file; a wrong one ends the process at once (exit code 2), tools that can't be used are named in the log."""
    try:
        entries = load_tool_registry(path)
    except ToolsFileError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from None
    for name, entry in entries.items():
        if entry.problem:
            log.warning("tool.unusable", tool=name, problem=entry.problem)
    return entries


def database_check(pool: Pool) -> Check:
    """True while the database answers."""

    async def check() -> bool:
        return bool(await pool.fetchval("SELECT 1", timeout=2) == 1)

    return check


def consumer_check(broker: RabbitBroker) -> Check:
    """True while every subscriber of the broker has a consumer that the server knows of; an open connection is not enough."""

    async def check() -> bool:
        return all([await _consumes(subscriber) for subscriber in broker.subscribers])

    return check


async def _consumes(subscriber: object) -> bool:
    queue = getattr(subscriber, "_queue_obj", None)
    tag = getattr(subscriber, "_consumer_tag", None)
    if queue is None or tag is None or queue.channel.is_closed:
        return False
    channel = await queue.channel.get_underlay_channel()
    return tag in channel.consumers


class ConsumerWatch:
    """Consumes anew when a consumer is missing for some seconds though the broker is there.

    The client library brings back consumers of lost connections and those that the broker cancelled, but not every one: a channel that
    the broker closed stays closed when it can't be opened again at once. A new connection is the one remedy for all such cases.
    """

    def __init__(self, broker: RabbitBroker, patience: float = _PATIENCE_SECONDS) -> None:
        self._broker = broker
        self._check = consumer_check(broker)
        self._patience = patience
        self._restart: asyncio.Task[None] | None = None
        self._stopping = False

    async def run(self) -> None:
        """Watches for ever."""
        clock = asyncio.get_running_loop().time
        consumed_at = clock()
        while not self._stopping:
            await asyncio.sleep(_WATCH_SECONDS)
            if not self._is_connected() or await self._consumes():
                consumed_at = clock()
            elif clock() - consumed_at > self._patience:
                log.warning("consumer.missing")
                await self._start_anew()
                consumed_at = clock()
        await asyncio.Event().wait()

    def _is_connected(self) -> bool:
        """Whether it has consumed before, and the broker is there: otherwise those who connect are at work already."""
        connection = getattr(self._broker, "_connection", None)
        return self._broker.running and connection is not None and connection.connected.is_set()

    async def _consumes(self) -> bool:
        try:
            async with asyncio.timeout(_WATCH_SECONDS):
                return await self._check()
        except BROKER_TROUBLE:
            return False

    async def _start_anew(self) -> None:
        if self._stopping:
            return
        self._restart = asyncio.ensure_future(self._restart_broker())
        await asyncio.wait([self._restart])
        if not self._restart.cancelled():
            self._restart.result()
            log.info("consumer.restored")

    async def _restart_broker(self) -> None:
        while True:
            try:
                await self._broker.stop()
                break
            except (ExceptionGroup, *BROKER_TROUBLE) as error:  # a channel that closes at this moment
                log.warning("consumer.not_stopped", cause=type(error).__name__)
                await asyncio.sleep(_START_PAUSE_SECONDS)
        await self._broker.start()

    async def stop(self) -> None:
        """Starts nothing from now on, not even what is being started."""
        self._stopping = True
        if self._restart is not None and not self._restart.done():
            self._restart.cancel()
            await asyncio.wait([self._restart])


async def run_service(service: Service, settings: CommonSettings) -> None:
    """Runs until SIGTERM or SIGINT. Raises the error of a loop that failed, after an orderly end."""
    watch = ConsumerWatch(service.broker)
    loops = [*service.loops, watch.run]
    if settings.health_port:
        loops.append(HealthServer(settings.health_host, settings.health_port, service.checks).run)
    app = FastStream(service.broker, logger=None, lifespan=_lifespan(loops, service.close))

    @app.on_shutdown
    async def stop_taking() -> None:
        log.info("service.stopping")
        service.stop_taking()
        await watch.stop()
        for subscriber in service.broker.subscribers:
            await subscriber.stop()

    @app.after_shutdown
    async def drain() -> None:
        await service.drain()

    @app.after_startup
    async def announce() -> None:
        log.info("service.started")

    await app.run()
    log.info("service.stopped")


def _lifespan(
    loops: Sequence[Loop], close: Callable[[], Awaitable[None]]
) -> Callable[[], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        async with background(loops):
            yield
        await close()

    return lifespan


@asynccontextmanager
async def background(loops: Sequence[Loop]) -> AsyncIterator[None]:
    """Runs loops for the time of the block. A loop that fails ends the block with its error."""
    async with asyncio.TaskGroup() as group:
        tasks = {group.create_task(_keep(loop)) for loop in loops}
        try:
            yield
        finally:
            await _end(tasks)


async def _end(tasks: set[asyncio.Task[None]]) -> None:
    """Cancels until all have ended: a loop that survives database errors may take a cancellation for one (asyncpg's rollback hides it)."""
    while tasks:
        for task in tasks:
            task.cancel()
        _, tasks = await asyncio.wait(tasks, timeout=1)


async def _keep(loop: Loop) -> None:
    await loop()


def main(start: Callable[[], Awaitable[None]]) -> None:
    """The entry point of a service process. A failure ends the process at once, with exit code 1."""
    uvloop.run(_run(start))


async def _run(start: Callable[[], Awaitable[None]]) -> None:
    try:
        await start()
    except Exception:
        log.exception("service.failed")
        sys.stdout.flush()
        # Not by way of the event loop's clean-up: a robust connection that is reconnecting swallows its cancellation, and a process
        # without its loops would live on and take messages.
        os._exit(1)
