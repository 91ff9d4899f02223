"""The sweeper: finds runs whose runner is gone. Every replica has one; they need no leader."""

import asyncio
import random
from collections.abc import Callable, Sequence
from uuid import UUID

import structlog

from services.agent_runner.store import RunStore
from shared.db.pool import DATABASE_TROUBLE

log = structlog.get_logger()


class Sweeper:
    """Sweeps every `interval` seconds, give or take a fifth, so that replicas don't march in step; `nudge` says that there is work now,
    `held` which runs this process works on."""

    def __init__(
        self, store: RunStore, held: Callable[[], Sequence[UUID]], nudge: Callable[[], None], interval: float
    ) -> None:
        self._store = store
        self._held = held
        self._nudge = nudge
        self._interval = interval

    async def run(self) -> None:
        """Sweeps for ever."""
        while True:
            await asyncio.sleep(self._interval * random.uniform(0.8, 1.2))  # noqa: S311 - not for secrets
            try:
                abandoned = await self._store.requeue_abandoned(self._held())
            except DATABASE_TROUBLE as error:
                log.warning("sweep.failed", cause=type(error).__name__)
                continue
            if abandoned:
                log.warning("run.abandoned", runs=[str(run_id) for run_id in abandoned])
                self._nudge()
