"""Takes runs and sees them through: claim, loop, and what happens to the run when the loop doesn't reach its end."""

import asyncio
import random
from datetime import timedelta
from typing import Protocol
from uuid import UUID

import structlog

from services.agent_runner.deltas import DeltaGatherer
from services.agent_runner.loop import Loop
from services.agent_runner.settings import RunnerSettings
from services.agent_runner.store import RunStore
from shared.contracts.commands import ExecuteRun
from shared.conversation import Advance, ClaimedRun, Ending
from shared.db.pool import DATABASE_TROUBLE
from shared.errors import ErrorInfo, LeaseLost
from shared.hints import HintSender, stream_advanced
from shared.jobs import JobSlots
from shared.leases import LeaseKeeper
from shared.logging import log_context
from shared.wake_ups import start_in_slot

log = structlog.get_logger()

_MAX_BACKOFF_SECONDS = 300.0


class Nudge(Protocol):
    """Tells the outbox relay that rows are waiting."""

    def __call__(self) -> None: ...


class Worker:
    """The runs of this process."""

    def __init__(
        self,
        store: RunStore,
        loop: Loop,
        slots: JobSlots,
        keeper: LeaseKeeper,
        hints: HintSender,
        nudge: Nudge,
        settings: RunnerSettings,
    ) -> None:
        self._store = store
        self._loop = loop
        self._slots = slots
        self._keeper = keeper
        self._hints = hints
        self._nudge = nudge
        self._settings = settings

    async def take(self, command: ExecuteRun) -> None:
        """Claims the run that a wake-up names and sees it through in a slot of its own; returns when it is claimed or not to be had.

        Raises NackMessage when no slot is free in time or the process is stopping.
        """

        async def work(claimed: asyncio.Event) -> None:
            run = await self._claim(command.run_id)
            claimed.set()
            if run is not None:
                await self._keeper.hold(run.run_id, self._see_through(run))

        await start_in_slot(self._slots, self._settings.slot_wait, work)

    async def _claim(self, run_id: UUID) -> ClaimedRun | None:
        try:
            return await self._store.claim(run_id)
        except DATABASE_TROUBLE as error:
            log.warning("run.not_claimed", cause=type(error).__name__)  # the sweeper sends another wake-up
            return None

    def cancel(self, run_id: UUID) -> None:
        """Stops a run that was ended from outside; harmless when it isn't here."""
        self._keeper.lose(run_id)

    async def _see_through(self, run: ClaimedRun) -> None:
        with log_context(
            tenant_id=run.tenant_id, session_id=run.session_id, run_id=run.run_id, request_id=run.request_id
        ):
            finished = False
            try:
                self._hints.send(stream_advanced(run.session_id, run.frames))
                await self._execute(run)
                finished = True
            except LeaseLost:
                log.info("run.lost", epoch=run.epoch)
                finished = True
            except DATABASE_TROUBLE as error:
                log.warning("run.interrupted", cause=type(error).__name__)
            except Exception:
                log.exception("run.crashed")
                await self._release(run, self._backoff(run), counts=True)
                finished = True
            finally:
                if not finished:  # the process is stopping or the database was away: no fault of the run's
                    await self._release(run, 0.0, counts=False)

    async def _execute(self, run: ClaimedRun) -> None:
        log.info("run.claimed", epoch=run.epoch, attempt=run.attempts, waited_ms=round(run.waited * 1000))

        async def commit(advance: Advance) -> None:
            frames = await self._store.advance(run, advance)
            self._hints.send(stream_advanced(run.session_id, frames))
            if advance.ending is not None:
                self._nudge()
            _log_advance(advance)

        if run.attempts > self._settings.lease.max_attempts:
            message = f"given up after {run.attempts - 1} attempts without progress"
            await commit(
                Advance(ending=Ending("error", run.usage, ErrorInfo(code="attempts_exhausted", message=message)))
            )
            return
        progress = await self._store.load(run)
        deltas = DeltaGatherer(run.session_id, self._hints, self._settings.delta_interval)
        await self._loop.run(progress, commit, deltas)

    async def _release(self, run: ClaimedRun, delay: float, *, counts: bool) -> None:
        try:
            await self._store.release(run, timedelta(seconds=delay), counts=counts)
            self._nudge()
            log.info("run.released", delay=round(delay, 3))
        except DATABASE_TROUBLE as error:
            log.warning("run.not_released", cause=type(error).__name__)  # its lease runs out by itself

    @staticmethod
    def _backoff(run: ClaimedRun) -> float:
        """Seconds; full jitter (Brooker, "Exponential Backoff And Jitter", 2015)."""
        return random.uniform(0, min(2.0**run.attempts, _MAX_BACKOFF_SECONDS))  # noqa: S311 - not for secrets


def _log_advance(advance: Advance) -> None:
    journal, ending = advance.journal, advance.ending
    if journal is not None:
        kind = "tool.finished" if journal["kind"] == "execute" else "model.replied"
        log.info(
            kind, step=journal["step"], n=journal["n"], message_id=str(journal["message_id"]), tool=journal.get("tool_name"),
            state=journal["state"], usage=journal.get("usage"),
        )  # fmt: skip
    if ending is not None:
        log.info(
            "run.finished", reason=ending.reason, error=ending.error.code if ending.error else None, usage=ending.usage
        )
    elif advance.announce:
        log.info("run.state", state=advance.state, step=advance.step)
