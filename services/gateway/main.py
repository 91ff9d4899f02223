"""The gateway process: `python -m services.gateway.main`. The only place that builds its parts."""

import resource
import signal
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from types import FrameType
from uuid import UUID

import httpx
import structlog
import uvicorn

from services.gateway.admission import Admission
from services.gateway.app import create_app
from services.gateway.deps import Parts
from services.gateway.model_status import ModelStatus
from services.gateway.rates import TenantRates
from services.gateway.settings import GatewaySettings
from services.gateway.slots import Slots
from services.gateway.store.admission import fold_unfinished_for_ever
from services.gateway.store.api_keys import ApiKeys
from services.gateway.store.events import StoredEvents
from services.gateway.store.idempotency import forget_old_keys_for_ever
from services.gateway.streams import Streams
from services.gateway.subscriptions import Audience
from services.gateway.turns import Turns
from shared.contracts.hints import HINT, MessageDelta, StreamAdvanced
from shared.db.pool import open_pool
from shared.hints import HintListener, HintPublisher
from shared.logging import configure_logging
from shared.model_registry import RegistryError, load_registry
from shared.outbox import OutboxRelay
from shared.rpc import RpcClient
from shared.service import background, database_check, load_tools
from shared.service import main as run_process
from shared.settings import load_settings

NAME = "gateway"

log = structlog.get_logger()

_BACKLOG = 2048
_UNANSWERED_SECONDS = 20
_AT_ONE_SESSION = 2  # one at work, one that is ready to


@asynccontextmanager
async def running_parts(settings: GatewaySettings) -> AsyncIterator[Parts]:
    """The parts, with their loops running; waits for the database, but not for the broker."""
    registry, tools = load_registry(settings.models_file), load_tools(settings.tools_file)
    broker_url = settings.rabbitmq_url.get_secret_value()
    pool = await open_pool(settings.database_url.get_secret_value(), NAME, settings.pool)
    async with pool, httpx.AsyncClient(follow_redirects=False) as http:
        keys = ApiKeys(pool, settings.key_cache_seconds)
        audience = Audience(settings.streams)
        session_streams = Streams(StoredEvents(pool, "session_id"), keys, audience, settings.streams)
        knowledge_base_streams = Streams(StoredEvents(pool, "knowledge_base_id"), keys, audience, settings.streams)
        streams = (session_streams, knowledge_base_streams)
        relay = OutboxRelay(pool, broker_url, NAME, declares=())
        hints = HintPublisher(broker_url, NAME)
        rpc = RpcClient(broker_url, NAME)
        feed = HintFeed(streams)
        listener = HintListener(broker_url, NAME, feed.take, feed.note_gap)
        keep, load = timedelta(hours=settings.idempotency_hours), settings.load

        async def sweep() -> None:
            await forget_old_keys_for_ever(pool, keep)

        async def fold() -> None:
            await fold_unfinished_for_ever(pool)

        async def broker_check() -> bool:
            return listener.ready and rpc.ready

        parts = Parts(
            settings=settings,
            registry=registry,
            tools=tools,
            pool=pool,
            relay=relay,
            hints=hints,
            rpc=rpc,
            keys=keys,
            admission=Admission(settings.limits),
            rates=TenantRates(pool, settings.rate),
            session_turns=Turns(_AT_ONE_SESSION, load.turn_timeout),
            storing_turns=Turns(load.uploads_stored, load.storing_timeout),
            downloads=Slots(load.downloads_per_tenant, load.downloads, "too_many_downloads", "downloads"),
            session_streams=session_streams,
            knowledge_base_streams=knowledge_base_streams,
            model_status=ModelStatus(registry, http, settings.probe_seconds, settings.probe_cache_seconds),
            checks={"database": database_check(pool), "broker": broker_check},
        )
        loops = [relay.run, hints.run, rpc.run, listener.run, *(stream.run for stream in streams), sweep, fold]
        async with background(loops):
            yield parts


class HintFeed:
    """Gives hints to the streams that somebody listens to; all others are not even decoded."""

    def __init__(self, streams: Sequence[Streams]) -> None:
        self._streams = streams

    def take(self, _kind: str, routing_key: str, body: bytes) -> None:
        """Raises ValueError for a hint that can't be read."""
        stream_id = UUID(routing_key)
        for streams in self._streams:
            if not streams.is_watched(stream_id):
                continue
            hint = HINT.validate_json(body)
            if isinstance(hint, StreamAdvanced):
                streams.take_hint(hint)
            elif isinstance(hint, MessageDelta):
                streams.take_delta(hint)

    def note_gap(self) -> None:
        for streams in self._streams:
            streams.note_gap()


class GatewayServer(uvicorn.Server):
    """uvicorn, which on SIGTERM first sends the clients of event streams away."""

    def __init__(self, config: uvicorn.Config, parts: Parts) -> None:
        super().__init__(config)
        self._parts = parts

    def handle_exit(self, sig: int, _frame: FrameType | None) -> None:
        # uvicorn would send itself the signal again after the end, and die of it before the parts are closed.
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        log.info("service.stopping")
        self._parts.session_streams.stop()
        self._parts.knowledge_base_streams.stop()
        await super().shutdown(sockets)


def allow_many_connections() -> None:
    """Raises the soft limit of open files to the hard one: a gateway holds thousands of streams, a shell's 1,024 would be all of them."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def listen(host: str, port: int) -> socket.socket:
    """A listening socket whose connections end when their other side does not answer any more. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server = socket.socket(family, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # Also ends connections whose client stopped reading.
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNANSWERED_SECONDS * 1000)
    server.bind((host, port))
    server.listen(_BACKLOG)
    server.setblocking(False)
    return server


async def serve() -> None:
    """Serves until SIGTERM or SIGINT."""
    settings = load_settings(GatewaySettings)
    configure_logging(NAME, settings.log_level)
    allow_many_connections()
    try:
        async with running_parts(settings) as parts:
            config = uvicorn.Config(
                create_app(parts),
                loop="uvloop",
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=settings.graceful_seconds,
            )
            server_socket = listen(settings.gateway_host, settings.gateway_port)
            log.info("service.started", host=settings.gateway_host, port=server_socket.getsockname()[1])
            await GatewayServer(config, parts).serve([server_socket])
    except RegistryError as error:
        raise SystemExit(f"models file: {error}") from None
    log.info("service.stopped")


if __name__ == "__main__":
    run_process(serve)
