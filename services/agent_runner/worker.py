"""Sees claimed runs through: the loop, and what happens to the run when the loop doesn't reach its end."""

import random
from datetime import timedelta
from functools import partial
from typing import Protocol
from uuid import UUID

import structlog

from services.agent_runner import rows
from services.agent_runner.deltas import DeltaGatherer
from services.agent_runner.loop import Loop
from services.agent_runner.ports import HandBack
from services.agent_runner.settings import RunnerSettings
from services.agent_runner.store import RunStore
from shared.conversation import Advance, ClaimedRun, Ending
from shared.db.pool import DATABASE_TROUBLE
from shared.errors import ErrorInfo, LeaseLost
from shared.failpoints import failpoint
from shared.hints import HintSender, stream_advanced
from shared.leases import LeaseKeeper
from shared.logging import log_context

log = structlog.get_logger()


class Nudge(Protocol):
    """Tells the outbox relay that rows are waiting."""

    def __call__(self) -> None: ...


class Worker:
    """The runs of this process."""

    def __init__(
        self,
        store: RunStore,
        loop: Loop,
        keeper: LeaseKeeper,
        hints: HintSender,
        nudge: Nudge,
        settings: RunnerSettings,
    ) -> None:
        self._store = store
        self._loop = loop
        self._keeper = keeper
        self._hints = hints
        self._nudge = nudge
        self._settings = settings
        self._deltas: dict[UUID, DeltaGatherer] = {}
        self._cancelled: set[UUID] = set()

    async def work(self, run: ClaimedRun) -> None:
        """Sees a run through under its lease, to its end or until it is handed back."""
        failpoint("run_claimed")
        await self._keeper.hold(run.run_id, self._see_through(run))

    def cancel(self, run_id: UUID) -> None:
        """Stops a run that is to end, or was ended from outside; harmless when it isn't here."""
        if run_id in self._deltas:
            self._cancelled.add(run_id)
            self._keeper.lose(run_id)

    async def _see_through(self, run: ClaimedRun) -> None:
        with log_context(
            tenant_id=run.tenant_id, session_id=run.session_id, run_id=run.run_id, request_id=run.request_id
        ):
            finished = False
            deltas = DeltaGatherer(run.session_id, run.run_id, self._hints, self._settings.delta_interval)
            self._deltas[run.run_id] = deltas
            try:
                self._hints.send(stream_advanced(run.session_id, run.frames))
                await self._execute(run, deltas)
                finished = True
            except LeaseLost:
                log.info("run.lost", epoch=run.epoch)
                finished = True
            except HandBack:
                log.info("run.handed_back")
            except DATABASE_TROUBLE as error:
                log.warning("run.interrupted", cause=type(error).__name__)
            except Exception:
                log.exception("run.crashed")
                await self._release(run, self._backoff(run), counts=True)
                finished = True
            finally:
                del self._deltas[run.run_id]
                if run.run_id in self._cancelled:
                    self._cancelled.discard(run.run_id)
                    if not finished:
                        await self._end_cancelled(run, deltas)
                elif not finished:  # the process is stopping or the database was away: no fault of the run's
                    await self._release(run, 0.0, counts=False)

    async def _execute(self, run: ClaimedRun, deltas: DeltaGatherer) -> None:
        log.info("run.claimed", epoch=run.epoch, attempt=run.attempts, waited_ms=round(run.waited * 1000))
        commit = partial(self._commit, run)

        if run.attempts > self._settings.lease.max_attempts:
            message = f"given up after {run.attempts - 1} attempts without progress"
            await commit(
                Advance(ending=Ending("error", run.usage, ErrorInfo(code="attempts_exhausted", message=message)))
            )
            return
        progress = await self._store.load(run)
        await self._loop.run(progress, commit, deltas)

    async def _commit(self, run: ClaimedRun, advance: Advance) -> None:
        frames = await self._store.advance(run, advance)
        self._hints.send(stream_advanced(run.session_id, frames))
        if advance.ending is not None:
            self._nudge()
        _log_advance(advance)

    async def _end_cancelled(self, run: ClaimedRun, deltas: DeltaGatherer) -> None:
        """Ends the run with the text that clients have seen of the reply in the making. Where this fails, the gateway ends it without."""
        cut = deltas.cut()
        message = rows.interrupted_message(*cut) if cut else None
        try:
            await self._commit(run, Advance(message=message, ending=Ending("cancelled")))
        except LeaseLost:
            log.info("run.lost", epoch=run.epoch)
        except DATABASE_TROUBLE as error:
            log.warning("run.not_ended", cause=type(error).__name__)

    async def _release(self, run: ClaimedRun, delay: float, *, counts: bool) -> None:
        try:
            await self._store.release(run, timedelta(seconds=delay), counts=counts)
            self._nudge()
            log.info("run.released", delay=round(delay, 3))
        except DATABASE_TROUBLE as error:
            log.warning("run.not_released", cause=type(error).__name__)  # its lease runs out by itself

    def _backoff(self, run: ClaimedRun) -> float:
        """Seconds; full jitter (Brooker, "Exponential Backoff And Jitter", 2015)."""
        return random.uniform(0, min(2.0**run.attempts, self._settings.lease.max_backoff))  # noqa: S311 - not for secrets


def _log_advance(advance: Advance) -> None:
    journal, ending = advance.journal, advance.ending
    if journal is not None:
        kind = "model.replied"
        if journal["kind"] == "execute":
            kind = "tool.started" if journal["state"] == "started" else "tool.finished"
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
