"""Jobs: work that this process has claimed, a bounded number at a time.

The process claims for itself: whenever a slot is free and something says that there may be work (a wake-up, a job that has ended, a second
that has passed), it asks the database for the next rows in their fair order. A wake-up carries no work. Losing it costs a second, and work
that waits never stands in a queue behind somebody else's.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Generic, Protocol, TypeVar
from uuid import UUID

import structlog
from pydantic import BaseModel, Field

log = structlog.get_logger()

_HAND_BACK_SECONDS = 10.0


class JobSettings(BaseModel):
    """How much a process takes on. Times in seconds."""

    slots: int = Field(default=64, ge=1, le=1000, description="jobs at once")
    tenant_share: float = Field(
        default=0.875,
        gt=0,
        le=1,
        description="of the slots, that one tenant may hold; the rest is there at once for others",
    )
    poll_every: float = Field(default=1.0, gt=0, description="looks for work without a wake-up")
    batch: int = Field(default=8, ge=1, description="rows claimed by one statement")
    drain: float = Field(default=25.0, ge=0, description="that running jobs get at the end")

    @property
    def slots_per_tenant(self) -> int:
        return max(1, int(self.slots * self.tenant_share))


class ClaimedJob(Protocol):
    """A claimed row."""

    @property
    def tenant_id(self) -> UUID: ...


JobT = TypeVar("JobT", bound=ClaimedJob)

Claim = Callable[[int, Sequence[UUID]], Awaitable[Sequence[JobT]]]
"""Claims up to so many rows, none of these tenants'."""

Work = Callable[[JobT], Coroutine[None, None, None]]
"""Sees one claimed row through; a cancellation makes it hand the row back."""


class Jobs(Generic[JobT]):
    """The claimed work of a process. `run()` claims for ever; `stop_taking()` and `drain()` end it in order.

    `trouble` is what `claim` raises while the database is away: it is asked again.
    """

    def __init__(
        self, claim: Claim[JobT], work: Work[JobT], settings: JobSettings, trouble: tuple[type[Exception], ...]
    ) -> None:
        self._claim = claim
        self._work = work
        self._settings = settings
        self._trouble = trouble
        self._tasks: set[asyncio.Task[None]] = set()
        self._by_tenant: Counter[UUID] = Counter()
        self._wanted = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._claiming = asyncio.Lock()
        self._stopping = False

    @property
    def stopping(self) -> bool:
        """Whether this process takes no more work: a job that reaches a good moment hands back."""
        return self._stopping

    def nudge(self) -> None:
        """Says that there may be work; never blocks."""
        self._wanted.set()

    async def wait_for_room(self, within: float) -> None:
        """Returns when a slot is free, when this process stops, or after so many seconds."""
        try:
            async with asyncio.timeout(within):
                await self._room.wait()
        except TimeoutError:
            pass

    async def run(self) -> None:
        """Claims for ever."""
        while True:
            try:
                async with asyncio.timeout(self._settings.poll_every):
                    await self._wanted.wait()
            except TimeoutError:
                pass  # the poll
            self._wanted.clear()
            try:
                while await self._take_some():
                    pass
            except self._trouble as error:
                log.warning("claim.failed", cause=type(error).__name__)

    async def _take_some(self) -> bool:
        """Claims a batch; true when there may be more."""
        async with self._claiming:
            free = self._settings.slots - len(self._tasks)
            if free <= 0 or self._stopping:
                return False
            # Half of what is free, so that a batch takes no more than some of a tenant's last slots too many.
            limit = min(self._settings.batch, (free + 1) // 2)
            claimed = await self._claim(limit, self._crowded())
            for job in claimed:
                self._start(job)
        return len(claimed) == limit

    def _crowded(self) -> list[UUID]:
        most = self._settings.slots_per_tenant
        return [tenant_id for tenant_id, count in self._by_tenant.items() if count >= most]

    def _start(self, job: JobT) -> None:
        task = asyncio.ensure_future(self._work(job))
        self._tasks.add(task)
        self._by_tenant[job.tenant_id] += 1
        if len(self._tasks) >= self._settings.slots:
            self._room.clear()

        def end(task: asyncio.Task[None]) -> None:
            self._end(task, job.tenant_id)

        task.add_done_callback(end)

    def _end(self, task: asyncio.Task[None], tenant_id: UUID) -> None:
        self._tasks.discard(task)
        self._by_tenant[tenant_id] -= 1
        if not self._by_tenant[tenant_id]:
            del self._by_tenant[tenant_id]
        self._room.set()
        self._wanted.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("job.crashed", exc_info=error)

    def stop_taking(self) -> None:
        """Claims nothing new from now on."""
        self._stopping = True
        self._room.set()

    async def drain(self) -> None:
        """Lets jobs go on for the time of the settings, then cancels those left and waits for them to hand back."""
        self.stop_taking()
        try:
            async with asyncio.timeout(self._settings.drain), self._claiming:
                pass  # what is being claimed at this moment has become a job
        except TimeoutError:
            log.warning("claim.abandoned")  # the database does not answer; a sweeper finds what was claimed
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._settings.drain)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_HAND_BACK_SECONDS)
