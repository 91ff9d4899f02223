"""JSON logs, one line an event, with the ids of what is being worked on bound from context.

Ids that are bound: service, request_id, tenant_id, session_id, run_id, step, message_id, document_id.
"""

import logging
import sys
from contextlib import AbstractContextManager
from typing import Any

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

# Libraries that report what we log ourselves (broker.unreachable), or every single call.
_QUIET = {
    "aio_pika": logging.CRITICAL,
    "aiormq": logging.CRITICAL,
    "asyncpg": logging.CRITICAL,
    "httpx": logging.WARNING,
    "httpcore": logging.WARNING,
    "uvicorn.access": logging.WARNING,
}


def configure_logging(service: str, level: str) -> None:
    """Routes structlog and the standard library's logging to JSON lines on stdout."""

    def add_service(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["service"] = service
        return event

    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        add_service,
        structlog.processors.format_exc_info,
    ]
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*shared, structlog.processors.JSONRenderer(serializer=_to_json)],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.BytesLoggerFactory(sys.stdout.buffer),
        cache_logger_on_first_use=True,
    )
    _route_standard_library(shared, number)


def _route_standard_library(shared: list[Processor], number: int) -> None:
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(serializer=lambda value, **_: _to_json(value).decode()),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(number, logging.WARNING))
    for name, least in _QUIET.items():
        logging.getLogger(name).setLevel(max(number, least))


def _to_json(value: Any, **_: Any) -> bytes:
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS)


def log_context(**ids: object) -> AbstractContextManager[Any]:
    """Binds ids to every log line written inside the `with` block, in this task and the tasks that it starts."""
    return structlog.contextvars.bound_contextvars(
        **{name: str(value) for name, value in ids.items() if value is not None}
    )
