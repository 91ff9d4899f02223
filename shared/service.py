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

log = structlog.get_logger()

Loop = Callable[[], Awaitable[None]]

_GRACE_SECONDS = 10.0
_START_PAUSE_SECONDS = 0.5


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


async def run_service(service: Service, settings: CommonSettings) -> None:
    """Runs until SIGTERM or SIGINT. Raises the error of a loop that failed, after an orderly end."""
    app = FastStream(service.broker, logger=None, lifespan=_lifespan(service, settings))

    @app.on_shutdown
    async def stop_taking() -> None:
        log.info("service.stopping")
        service.stop_taking()
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


def _lifespan(service: Service, settings: CommonSettings) -> Callable[[], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        loops = list(service.loops)
        if settings.health_port:
            loops.append(HealthServer(settings.health_host, settings.health_port, service.checks).run)
        async with background(loops):
            yield
        await service.close()

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
