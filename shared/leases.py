"""Leases: who works on a row, until when, and how the worker finds out that it no longer does.

A lease is three columns (owner, epoch, until) set by one UPDATE by the database's clock. Every write of the worker is fenced by the epoch,
so a wrong guess about who is alive costs time and never correctness. The owner is a fresh UUID of this process start. It also
holds an advisory lock on a connection of its own, which falls with the process: sweepers see the death within seconds and
need not wait for the lease to run out.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import timedelta
from typing import Self
from uuid import UUID

import asyncpg
import structlog
from pydantic import BaseModel, Field, model_validator

from shared.db.pool import DATABASE_TROUBLE
from shared.ids import new_id

log = structlog.get_logger()

# The two halves of the advisory lock's key, as pg_locks shows them: this number, and a hash of the owner.
PRESENCE_CLASS = 7_305
_UNTOUCHED_SECONDS = 2.0  # how long a lease is left alone after it was taken or renewed


class LeaseSettings(BaseModel):
    """Times in seconds."""

    lease: float = Field(default=30.0, gt=0)
    renew_every: float = Field(default=5.0, gt=0)
    sweep_every: float = Field(default=2.0, gt=0)
    max_attempts: int = Field(default=5, ge=1, description="claims without progress before the work is given up")
    max_backoff: float = Field(default=300.0, ge=0, description="before another attempt, at most")

    @model_validator(mode="after")
    def _renews_in_time(self) -> Self:
        if self.renew_every * 2 > self.lease:
            raise ValueError("renew_every must fit into the lease twice")
        return self

    @property
    def lease_interval(self) -> timedelta:
        return timedelta(seconds=self.lease)

    @property
    def orphaned_after(self) -> timedelta:
        """What is left of a lease, at most, when its owner's absence counts: a fresh owner may not hold its lock yet."""
        return timedelta(seconds=max(self.lease - _UNTOUCHED_SECONDS, 0))


class Presence:
    """This process's identity as an owner of leases, and the lock that tells others it is alive."""

    def __init__(self, database_url: str, service: str) -> None:
        self.owner: UUID = new_id()
        self._database_url = database_url
        self._service = service

    async def run(self) -> None:
        """Holds the lock for ever, on a new connection whenever the old one is lost."""
        while True:
            try:
                await self._hold_once()
            except DATABASE_TROUBLE as error:
                log.warning("presence.lost", cause=type(error).__name__)
            await asyncio.sleep(0.5)

    async def _hold_once(self) -> None:
        settings = {"application_name": f"{self._service}.presence"}
        connection = await asyncpg.connect(self._database_url, timeout=5, server_settings=settings)
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _connection: lost.set())
        try:
            await connection.execute(
                "SELECT pg_advisory_lock($1::integer, hashtext($2::uuid::text))", PRESENCE_CLASS, self.owner
            )
            await lost.wait()
        finally:
            connection.terminate()


Renew = Callable[[list[UUID]], Awaitable[Iterable[UUID]]]


class LeaseKeeper:
    """Renews the leases of all jobs of this process in one statement, and cancels the jobs whose lease is lost.

    `renew` gets the ids and returns those that are still ours.
    """

    def __init__(self, renew: Renew, settings: LeaseSettings) -> None:
        self._renew = renew
        self._settings = settings
        self._jobs: dict[UUID, asyncio.Task[None]] = {}
        self._lost: set[UUID] = set()
        self._renewed_at = 0.0

    async def hold(self, job_id: UUID, job: Coroutine[None, None, None]) -> None:
        """Runs a job under its lease; returns normally when it was cancelled because the lease is lost.

        A job on the same row that is still here is ended first: its lease was taken away and came back to this process.
        """
        await self._end_predecessor(job_id)
        task = asyncio.ensure_future(job)
        self._jobs[job_id] = task
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise
        finally:
            if self._jobs.get(job_id) is task:
                del self._jobs[job_id]
                self._lost.discard(job_id)
        if not task.cancelled():
            task.result()

    async def _end_predecessor(self, job_id: UUID) -> None:
        while (task := self._jobs.get(job_id)) is not None and not task.done():
            self.lose(job_id)
            await asyncio.wait([task])
        self._lost.discard(job_id)

    def held(self) -> list[UUID]:
        """What is being worked on."""
        return list(self._jobs)

    def lose(self, job_id: UUID) -> None:
        """Cancels, once, the job of a lease that somebody has taken away; harmless when there is none."""
        task = self._jobs.get(job_id)
        if task is not None and job_id not in self._lost:
            self._lost.add(job_id)
            task.cancel()

    async def run(self) -> None:
        """Renews for ever."""
        loop = asyncio.get_running_loop()
        self._renewed_at = loop.time()
        while True:
            await asyncio.sleep(self._settings.renew_every)
            ids = [job_id for job_id in self._jobs if job_id not in self._lost]
            try:
                kept = set(await self._renew(ids)) if ids else set()
                self._renewed_at = loop.time()
            except DATABASE_TROUBLE as error:
                log.warning("lease.not_renewed", cause=type(error).__name__, jobs=len(ids))
                # Nobody can take the work before the lease has run out; stop a little earlier than that.
                kept = set(ids) if loop.time() - self._renewed_at < self._settings.lease * 2 / 3 else set()
            for job_id in ids:
                if job_id not in kept:
                    log.warning("lease.lost", job=str(job_id))
                    self.lose(job_id)
